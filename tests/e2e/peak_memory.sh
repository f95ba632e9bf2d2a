#!/bin/sh
# Predicted against allocated memory: plans of several shapes and all ZeRO levels are run for a step,
# and the peak that each rank reports lies within [1 / 1.2, 1] of the plan's; from one level to the
# next it falls by what the plans say. Usage: peak_memory.sh ZPLAN SOURCE_ROOT ZEXEC
zexec=$(cd "$(dirname "$3")" && pwd)/$(basename "$3")
. "$(dirname "$0")/zplan_lib.sh"

awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%c", 32 + (i * i + i) % 90 }' >text.txt
n_checks=$((n_checks + 1))
"$zexec" convert text text.txt -o text.bin >out 2>err || fail "convert: $(cat err)"

# compare LEVEL ARGUMENT...: plans, runs one step and compares rank by rank
compare() {
    level=$1
    shift
    rm -rf run plan.json
    status_is 0 solve "$@" --zero "$level" --context 128KiB --reserve 0B -q || return
    n_checks=$((n_checks + 1))
    "$zexec" run plan.json --data text.bin --steps 1 -q --out run >out 2>err || {
        fail "zexec run of $* at ZeRO $level: $(head -c 400 err)"
        return
    }
    sed -n 's/.*"memory_bytes": \[\([^]]*\)\].*/\1/p' run/metrics.jsonl | tail -n 1 |
        tr -d ' ' | tr ',' '\n' >measured
    sed -n 's/.*"total_bytes": \([0-9]*\).*/\1/p' plan.json >predicted
    equal "ranks of $* at ZeRO $level" "$(wc -l <measured | tr -d ' ')" "$(wc -l <predicted | tr -d ' ')"
    equal "predicted / measured of $* at ZeRO $level ($(paste predicted measured | tr '\t\n' '/ '))" \
        "$(paste predicted measured | awk '$1 < $2 || $1 > 1.2 * $2 { bad = 1 }
            END { print (bad || NR == 0) }')" 0
}

# compare_levels ARGUMENT...: at all levels, on equal GPUs, so that the shape stays the same. What a
# level saves of what level 1 allocates is what the plans say.
compare_levels() {
    for level_of in 1 2 3; do
        compare $level_of "$@"
        mv measured "measured_$level_of"
        mv predicted "predicted_$level_of"
    done
    for level_of in 2 3; do
        equal "what ZeRO $level_of saves of $*, planned and measured" \
            "$(paste predicted_1 predicted_$level_of measured_1 measured_$level_of |
                awk '{ planned = $1 - $2; saved = $3 - $4 }
                    planned - saved > 0.02 * $3 || saved - planned > 0.02 * $3 { bad = 1 }
                    { all += saved }
                    END { print (bad || NR == 0 || all <= 0) }')" 0
    done
}

quickstart=$source_root/benchmarks/cases/quickstart/job.json
compare 1 --job "$quickstart"
compare 1 --job "$quickstart" --recompute full
compare 3 --job "$quickstart"
compare 1 --cluster "1x(1xT4)" --model tiny --seq 64 --batch 4
compare 3 --cluster "1x(1xT4)" --model tiny --seq 64 --batch 4
compare_levels --cluster "1x(2xT4)" --model tiny --seq 64 --batch 6 --stages 1
compare_levels --cluster "1x(3xT4)" --model llama-tiny --seq 64 --batch 6 --stages 1 --recompute full
compare 1 --cluster "1x(3xT4)" --model gpt2-bytes --seq 64 --batch 8 --stages 3 --max-micro-batch 2
compare 1,2,3 --cluster "1x(3xT4)" --model gpt2-bytes --seq 64 --batch 8 --stages 3 \
    --max-micro-batch 2
for level_of in 1 2 3; do
    compare $level_of --cluster "1x(2xT4)+1x(2xV100-32)" --model gpt2-bytes --seq 128 --batch 8 \
        --stages 2 --max-micro-batch 4
done
compare 1 --cluster "1x(3xT4)" --model opt-tiny --seq 64 --batch 8 --stages 3 --max-micro-batch 2
compare_levels --cluster "1x(4xT4)" --model opt-tiny --seq 64 --batch 8 --stages 2 --max-micro-batch 2
compare 1 --cluster "1x(2xT4)" --model llama-tiny --seq 128 --batch 8 --stages 2 --max-micro-batch 4
done_checks
