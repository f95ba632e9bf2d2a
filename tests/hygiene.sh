#!/bin/sh
# Things that do not belong into the tree. Usage: hygiene.sh SOURCE_ROOT
set -u
cd "$1" || exit 1
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || {
    echo "not a git checkout: skipped"
    exit 77
}
failed=0

# refuse WHAT PATTERN PATHS...: lists the lines of tracked text files that match.
refuse() {
    what=$1
    pattern=$2
    shift 2
    if git grep -nIE -e "$pattern" -- "$@"; then
        echo "^ $what"
        failed=1
    fi
}

refuse "unfinished work" '(^|[^[:alnum:]_])(TO''DO|FIX''ME|X''XX)([^[:alnum:]_]|$)' .
refuse "tab" "$(printf '\t')" . ':!tests/golden'
refuse "blank at the end of a line" '[[:blank:]]$' . ':!tests/golden'
refuse "path of one machine" '(^|[^[:alnum:]_.~-])/(work|home|root)(/|[^[:alnum:]_]|$)' .

long=$(git ls-files '*.c' '*.h' '*.cu' '*.sh' '*.py' '*.md' '*meson.build' | while read -r file; do
    [ -f "$file" ] && awk -v file="$file" 'END { if (NR > 900) print file ": " NR " lines, at most 900" }' "$file"
done)
if [ -n "$long" ]; then
    echo "$long"
    failed=1
fi
exit $failed
