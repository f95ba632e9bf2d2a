#!/bin/sh
# A global batch that micro-batches do not divide: the sizes add up to it, whatever the ranks.
. "$(dirname "$0")/zplan_lib.sh"

for gpus in 1 2 4; do
    status_is 0 solve --cluster "1x(${gpus}xT4)" --model tiny --seq 64 --batch 10 \
        --max-micro-batch 3 || continue
    equal "sum on $gpus GPUs" "$(micro_batches plan.json | tr ',' '\n' |
        awk '{ sum += $1 } $1 > 3 || $1 < 1 { bad = 1 } END { print sum, bad + 0 }')" "10 0"
    status_is 0 check plan.json
done

# One sample for two ranks: exactly one is trained.
status_is 0 solve --cluster "1x(2xT4)" --model tiny --seq 64 --batch 1 --stages 1
equal "one sample" "$(micro_batches plan.json)" 1

given="--cluster 1x(2xT4) --model tiny --seq 64"
for value in 0 -4 2.5 '"8"' 8x '' 99999999999999999999; do
    refused 2 batch solve $given --batch="$value"
done
refused 2 batch solve $given
for value in 0 -4 2.5 '"8"' null; do
    echo "{\"format\": \"zplan-job\", \"version\": 1, \"global_batch\": $value, \"seq_len\": 64}" \
        >job.json
    refused 2 global_batch solve --cluster "1x(2xT4)" --model tiny --job job.json
done
echo '{"format": "zplan-job", "version": 1, "global_batch": 4, "seq_len": 64}' >job.json
status_is 0 solve --cluster "1x(2xT4)" --model tiny --job job.json --batch 6
equal "option before job file" "$(number plan.json global_batch)" 6
refused 2 seq solve --cluster "1x(2xT4)" --model tiny --batch 4 --seq 129
done_checks
