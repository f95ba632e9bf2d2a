#!/bin/sh
# The case of the demonstration shows what a plan is for: stages, and in one of them unlike GPUs with
# unlike samples.
. "$(dirname "$0")/zplan_lib.sh"

case=$source_root/benchmarks/cases/quickstart
status_is 0 solve --job "$case/job.json" -o plan.json
equal "sum of micro-batches" "$(micro_batches plan.json | tr ',' '\n' |
    awk '{ sum += $1 } END { print sum }')" "$(number "$case/job.json" global_batch)"
equal "unlike GPUs with unlike samples in a stage, of two stages or more" "$(awk '
    /"forward":/ { stage++ }
    /"device":/ { device = $2 }
    /"samples":/ && stage {
        for (i = 1; i <= n[stage]; i++)
            if (devices[stage, i] != device && samples[stage, i] != $2)
                found = 1
        devices[stage, ++n[stage]] = device
        samples[stage, n[stage]] = $2
    }
    END { print (stage >= 2 && found) }' plan.json)" 1
equal "ZeRO-1 only" "$(grep '"zero_stage":' plan.json | sort -u | tr -d ' ,')" '"zero_stage":1'
status_is 0 check plan.json
status_is 0 explain plan.json
equal "widest line of explain" "$(awk 'length($0) > 80' out)" ""
done_checks
