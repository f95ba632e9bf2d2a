#!/bin/sh
# Numbers keep their "." under a locale with a decimal comma. Makes de_DE.UTF-8 in a temporary
# folder, repeats the unit tests of numbers there and compares what zplan writes with the C locale.
# Usage: locale.sh SOURCE_ROOT ZPLAN UNIT_TEST...
set -u
root=$1
zplan=$2
shift 2
command -v localedef >/dev/null || {
    echo "localedef is not installed: skipped"
    exit 77
}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
localedef -i de_DE -f UTF-8 "$folder/de_DE.UTF-8" 2>"$folder/log" || {
    cat "$folder/log"
    echo "the sources of de_DE are not installed: skipped"
    exit 77
}
export LOCPATH="$folder" LC_ALL=de_DE.UTF-8
[ "$(locale decimal_point)" = , ] || {
    echo "the locale has no decimal comma: skipped"
    exit 77
}
failed=0
for program in "$@"; do
    "$program" "$root/tests/golden" >"$folder/out" 2>&1 || failed=1
    tail -n 3 "$folder/out"
    if grep -q 'not installed' "$folder/out"; then
        echo "$program did not set the locale"
        failed=1
    fi
done

cd "$root/tests/golden/two-stages" || exit 1
for name in de_DE.UTF-8 C; do
    LC_ALL=$name "$zplan" solve --cluster cluster.json --model model.json --profile profile.json \
        --batch 8 --seq 64 -o "$folder/plan-$name.json" >"$folder/log-$name" 2>&1 || {
        cat "$folder/log-$name"
        failed=1
    }
    LC_ALL=$name "$zplan" explain "$folder/plan-$name.json" >"$folder/table-$name" || failed=1
done
sed "s/de_DE.UTF-8/C/g" "$folder/table-de_DE.UTF-8" >"$folder/table"
cmp "$folder/plan-de_DE.UTF-8.json" "$folder/plan-C.json" || failed=1
cmp "$folder/table" "$folder/table-C" || failed=1
exit $failed
