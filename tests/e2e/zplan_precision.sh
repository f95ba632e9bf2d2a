#!/bin/sh
# bf16 on GPUs without it; profile times of one precision are not used for the other.
. "$(dirname "$0")/zplan_lib.sh"

given="--model tiny --seq 64 --batch 4"
for type in V100-16 T4 RTX-2080; do
    refused 2 "$type" solve --cluster "1x(1xH100-80)+1x(1x$type)" $given --precision bf16
    status_is 0 solve --cluster "1x(1xH100-80)+1x(1x$type)" $given --precision fp32
done
status_is 0 solve --cluster "1x(2xA100-80)" $given --precision bf16
equal precision "$(grep -c '"precision": "bf16"' plan.json | awk '{ print ($1 > 1) }')" 1
status_is 0 check plan.json

model 2
profile "$(entry A100-80 block "$(point 1 1 2), $(point 64 64 128)"), $(free_ends A100-80)"
status_is 0 solve --cluster "1x(2xA100-80)" --model model.json --profile profile.json \
    --seq 64 --batch 4
refused 2 "in bf16" solve --cluster "1x(2xA100-80)" --model model.json --profile profile.json \
    --seq 64 --batch 4 --precision bf16
refused 2 "A100-40" solve --cluster "1x(2xA100-40)" --model model.json --profile profile.json \
    --seq 64 --batch 4
done_checks
