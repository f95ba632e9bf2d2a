#!/bin/sh
# Profiles with gaps: interpolated inside, never beyond; sizes that ran out of memory; noise.
. "$(dirname "$0")/zplan_lib.sh"

model 2
oom() {
    printf '{"samples": %s, "out_of_memory": true}' "$1"
}
given="--cluster 1x(1xT4) --model model.json --profile profile.json --seq 64"

# 10, 18, 66 ms at 1, 2, 8 samples: 4 take 34, so one micro-batch of 4 on 2 blocks takes 68.
points="$(point 1 4 6), $(point 2 8 10), $(point 8 30 36), $(oom 16)"
profile "$(entry T4 block "$points"), $(free_ends T4)"
status_is 0 solve $given --batch 4 --recompute none
equal "interpolated" "$(number plan.json step_ms | cut -c 1-6)" 68.000
grep -q '"interpolated": true' plan.json || fail "the plan does not mark 4 samples"
status_is 0 explain plan.json
grep -q 'interpolated' out || fail "explain does not say that 4 samples are interpolated"
status_is 0 solve $given --batch 16 --recompute none
equal "nothing beyond 8" "$(micro_batches plan.json)" 8,8
status_is 0 solve $given --batch 8 --recompute none
status_is 0 explain plan.json
grep -q '"interpolated"' plan.json && fail "the plan marks 8 samples"
grep -q 'interpolated' out && fail "8 samples were measured"

# One point: only that size is offered.
profile "$(entry T4 block "$(point 1 4 6)"), $(free_ends T4)"
status_is 0 solve $given --batch 4
equal "only 1" "$(micro_batches plan.json)" 1,1,1,1

# Noise is accepted with a warning that names the pair.
profile "$(entry T4 block "$(point 1 5 5), $(point 2 4 5), $(point 4 10 10)"), $(free_ends T4)"
status_is 0 solve $given --batch 4
grep 'warning' err | grep -q '2 samples.*1 samples' || fail "no warning: $(cat err)"

profile "$(entry T4 block "$(point 1 5 5)"), $(free_ends T4)"
refused 2 "V100-32" solve --cluster "1x(1xT4)+1x(1xV100-32)" --model model.json \
    --profile profile.json --seq 64 --batch 4
done_checks
