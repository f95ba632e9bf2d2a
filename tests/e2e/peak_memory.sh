#!/bin/sh
# Predicted against allocated memory: plans of several shapes are run for a step, and the peak that
# each rank reports lies within [1 / 1.2, 1] of the plan's. Usage: peak_memory.sh ZPLAN SOURCE_ROOT ZEXEC
zexec=$(cd "$(dirname "$3")" && pwd)/$(basename "$3")
. "$(dirname "$0")/zplan_lib.sh"

awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%c", 32 + (i * i + i) % 90 }' >text.txt
n_checks=$((n_checks + 1))
"$zexec" convert text text.txt -o text.bin >out 2>err || fail "convert: $(cat err)"

# compare ARGUMENT...: plans, runs one step and compares rank by rank
compare() {
    rm -rf run plan.json
    status_is 0 solve "$@" --zero 1 --context 128KiB --reserve 0B -q || return
    n_checks=$((n_checks + 1))
    "$zexec" run plan.json --data text.bin --steps 1 -q --out run >out 2>err || {
        fail "zexec run of $*: $(head -c 400 err)"
        return
    }
    sed -n 's/.*"memory_bytes": \[\([^]]*\)\].*/\1/p' run/metrics.jsonl | tail -n 1 |
        tr -d ' ' | tr ',' '\n' >measured
    sed -n 's/.*"total_bytes": \([0-9]*\).*/\1/p' plan.json >predicted
    equal "ranks of $*" "$(wc -l <measured | tr -d ' ')" "$(wc -l <predicted | tr -d ' ')"
    equal "predicted / measured of $* ($(paste predicted measured | tr '\t\n' '/ '))" \
        "$(paste predicted measured | awk '$1 < $2 || $1 > 1.2 * $2 { bad = 1 }
            END { print (bad || NR == 0) }')" 0
}

quickstart=$source_root/benchmarks/cases/quickstart/job.json
compare --job "$quickstart"
compare --job "$quickstart" --recompute full
compare --cluster "1x(1xT4)" --model tiny --seq 64 --batch 4
compare --cluster "1x(2xT4)" --model tiny --seq 64 --batch 6 --stages 1
compare --cluster "1x(3xT4)" --model gpt2-bytes --seq 64 --batch 8 --stages 3 --max-micro-batch 2
compare --cluster "1x(2xT4)+1x(2xV100-32)" --model gpt2-bytes --seq 128 --batch 8 --stages 2 \
    --max-micro-batch 4
compare --cluster "1x(3xT4)" --model opt-tiny --seq 64 --batch 8 --stages 3 --max-micro-batch 2
compare --cluster "1x(2xT4)" --model llama-tiny --seq 128 --batch 8 --stages 2 --max-micro-batch 4
done_checks
