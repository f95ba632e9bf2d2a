#!/bin/sh
# No plan: exit status 3, no file, the first limit in numbers. A plan on stdout is one document.
. "$(dirname "$0")/zplan_lib.sh"

# 1 GiB for a model that needs 16: 7 * 10^9 parameters do not fit at any level of ZeRO
cat >small.json <<'END'
{"format": "zplan-cluster", "version": 1, "name": "small",
 "nodes": [{"devices": [{"type": "A100-80", "memory": "1GiB"}], "nic": "100Gb/s"}]}
END
numbers() {
    for word in need missing; do
        grep -q "$word" err || fail "$1: no \"$word\" in $(cat err)"
    done
    grep -E -q 'stage|block|layer|embedding|head' err || fail "$1: no layer named in $(cat err)"
    grep -E -q '[0-9]' err || fail "$1: no number in $(cat err)"
}
refused 3 "no feasible plan" solve --cluster small.json --model gpt2-1558m --seq 1024 --batch 8 -q \
    && numbers "1 GiB"
refused 3 "no feasible plan" solve --cluster small.json --model gpt2-1558m --seq 1024 --batch 8 -q \
    --context 0B --reserve 0B && numbers "1 GiB, nothing kept free"

# One of three GPUs is too small for any block; with one stage per GPU asked for there is no plan.
cat >three.json <<'END'
{"format": "zplan-cluster", "version": 1, "name": "three",
 "nodes": [{"devices": [{"type": "A100-80", "count": 2}, {"type": "T4", "memory": "2100MiB"}],
            "nic": "100Gb/s"}]}
END
big="--cluster three.json --model gpt2-1558m --seq 1024 --batch 3 --max-gpus-per-stage 1 --zero 1"
refused 3 "no feasible plan" solve $big --stages 3 -q && numbers "three"
status_is 0 solve $big && status_is 0 check plan.json

# Feasible, to stdout.
status_is 0 solve --cluster "1x(2xT4)" --model tiny --seq 64 --batch 4 -q -o -
equal "first byte" "$(head -c 1 out)" "{"
equal "last byte" "$(tail -c 1 out | od -An -tx1 | tr -d ' ')" 0a
equal "stderr" "$(wc -c <err | tr -d ' ')" 0
cp out quiet.json
status_is 0 check quiet.json
status_is 0 estimate --cluster "1x(2xT4)" --model tiny --seq 64 -o profile.json
status_is 0 solve --cluster "1x(2xT4)" --model tiny --seq 64 --batch 4 --profile profile.json -o -
equal "stderr without -q" "$(wc -c <err | tr -d ' ')" 0
status_is 0 solve --cluster "1x(2xT4)" --model tiny --seq 64 --batch 4 -v -o -
cmp -s out quiet.json || fail "--verbose changed the document"

# A plan that does not fit, edited by hand: recomputed, not believed.
sed 's/"device_memory_bytes": [0-9]*/"device_memory_bytes": 1048576/;
     s/"memory_bytes": 16106127360/"memory_bytes": 1048576/' quiet.json >edited.json
status_is 3 check edited.json
grep -q missing err || fail "no numbers: $(cat err)"
done_checks
