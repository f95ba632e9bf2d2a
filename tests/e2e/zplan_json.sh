#!/bin/sh
# Lax JSON is refused in every file that zplan reads, with file and place.
. "$(dirname "$0")/zplan_lib.sh"

cat >cluster.json <<'END'
{"format": "zplan-cluster", "version": 1, "name": "c",
 "nodes": [{"devices": [{"type": "T4", "count": 2, "memory_bytes": 16106127360}], "nic": "100Gb/s"}]}
END
model 4
profile "$(entry T4 block "$(point 1 1 2), $(point 64 64 128)"), $(free_ends T4)"
echo '{"format": "zplan-job", "version": 1, "global_batch": 4, "seq_len": 64}' >job.json
given="--cluster cluster.json --model model.json --profile profile.json --job job.json"
status_is 0 solve $given -o good_plan.json
for file in cluster model profile job; do
    cp "$file.json" "good_$file.json"
done

# with FILE COMMAND...: the file through sed must be refused by name
bad() {
    file=$1
    shift
    cp "good_$file.json" "$file.json"
    "$@" <"good_$file.json" >"$file.json"
    cmp -s "$file.json" "good_$file.json" && fail "$file: $* changed nothing"
    if [ "$file" = plan ]; then
        mv plan.json edited.json
        refused 2 edited.json check edited.json
    else
        refused 2 "$file.json" solve $given
        cp "good_$file.json" "$file.json"
    fi
}
twice() {
    sed "s/\"$1\": \([^,}]*\)/\"$1\": \1, \"$1\": \1/"
}
for file in cluster model profile job plan; do
    case $file in
    cluster) key=memory_bytes ;;
    model) key=n_blocks ;;
    profile) key=samples ;;
    job) key=seq_len ;;
    plan) key=n_blocks ;;
    esac
    bad $file sed '$s/$/}/'
    bad $file sed '$s/$/ x/'
    bad $file twice $key
    bad $file sed "s/\"$key\"/\"N$key\"/"
    bad $file sed "s/\"$key\"/\"${key}z\"/"
    bad $file sed "s/\"$key\": [0-9]*/\"$key\": 12.5/"
    bad $file sed "s/\"$key\": [0-9]*/\"$key\": \"12\"/"
    bad $file sed "s/\"$key\": [0-9]*/\"$key\": 9007199254740993/"
    bad $file sed "s/\"$key\": [0-9]*/\"$key\": 1e999/"
    bad $file sed "s/\"version\": 1/\"version\": 2/"
    bad $file sed 's/"format": "zplan-[a-z]*"/"format": "zplan-other"/'
    bad $file head -c 40
    bad $file sed -n '/never/p'
    bad $file sed -n '1s/.*/[]/p'
done

# Numbers are exact.
sed 's/16106127360/150323855360/' good_cluster.json >cluster.json
status_is 0 solve $given
equal "memory" "$(number plan.json memory_bytes)" 150323855360
refused 2 missing.json solve --cluster missing.json --model tiny --seq 64 --batch 4
refused 2 missing.json check missing.json
refused 2 'did you mean "solve"' solv
refused 2 'did you mean "--cluster"' solve --clustre x
done_checks
