#!/bin/sh
# Plans that a person wrote: no predictions, no certificate; both are computed. And edited ones: a
# certificate of another plan is not believed.
. "$(dirname "$0")/zplan_lib.sh"

# 8 samples as 3, 3, 2; blocks 2 + 1; every layer takes 3 ms for 1 sample and 6 ms for 3.
layers=
for type in A100-40 T4; do
    for kind in embedding block head; do
        layers="$layers$(entry $type $kind "$(point 1 1 2), $(point 3 2 4)"),"
    done
done
cat >plan.json <<END
{"format": "zplan-plan", "version": 1,
 "inputs": {
  "cluster": {"format": "zplan-cluster", "version": 1, "nodes": [{"devices":
    [{"type": "A100-40", "count": 2}, {"type": "T4", "count": 2}], "nic": "8000000GB/s",
    "intra": "8000000GB/s", "nic_latency": "0ms", "intra_latency": "0ms"}]},
  "model_name": "toy",
  "model": {"format": "zplan-model", "version": 1, "family": "gpt2", "n_blocks": 3,
    "n_channels": 16, "n_heads": 2, "n_vocab": 32, "n_positions": 64},
  "job": {"format": "zplan-job", "version": 1, "global_batch": 8, "seq_len": 64},
  "profile": {"format": "zplan-profile", "version": 1, "model": "toy", "entries": [${layers%,}]}},
 "schedule": "1f1b",
 "micro_batches": [3, 3, 2],
 "stages": [
  {"forward": [0, 2], "zero_stage": 1, "n_params": 8096, "ranks": [
    {"node": "node0", "gpu": 0, "samples": 2, "shard": {"first": 0, "count": 5000}},
    {"node": "node0", "gpu": 1, "samples": 1, "shard": {"first": 5000, "count": 3096}}]},
  {"forward": [2, 3], "zero_stage": 1, "n_params": 3312, "ranks": [
    {"node": "node0", "gpu": 2, "samples": 3, "shard": {"first": 0, "count": 3312}}]}],
 "unused_devices": [{"node": "node0", "gpu": 3, "reason": "kept for others"}]}
END
# Stage 0: 2 blocks and the embedding, 2 samples in 4.5 ms each: 13.5 ms. Stage 1: a block and the
# head, 6 ms each: 12 ms. Step: 13.5 + 12 + 2 * 13.5 = 52.5 ms.
status_is 0 check plan.json
equal "step time" "$(sed -n 's/.* step \([^,]*\),.*/\1/p' out)" "52.5 ms"
grep -q 'no bound' out || fail "a bound from nowhere: $(cat out)"
equal "nothing to warn of" "$(wc -c <err | tr -d ' ')" 0
status_is 0 explain plan.json
grep -q 'kept for others' out || fail "the reason of the unused GPU is not shown"
grep -q 'interpolated' out || fail "2 samples are interpolated"
status_is 0 check - <plan.json

# One sample more on the slower rank, all on one: the step is that of the changed plan.
sed 's/"samples": 2/"samples": 3/; s/"samples": 1, "shard": {"first": 5000/"samples": 0, "shard": {"first": 5000/' \
    plan.json >edited.json
status_is 0 check edited.json
equal "step time" "$(sed -n 's/.* step \([^,]*\),.*/\1/p' out)" "66.0 ms"

# A certified plan, edited: warned, and no longer optimal.
status_is 0 solve --cluster "1x(2xT4)" --model tiny --seq 64 --batch 4 --stages 2 -o good.json
status_is 0 check good.json
grep -q optimal out || fail "not optimal: $(cat out)"
equal "nothing to warn of" "$(wc -c <err | tr -d ' ')" 0
sed 's/"recompute": "none"/"recompute": "full"/' good.json >edited.json
status_is 0 check edited.json
grep -q 'optimal' out && fail "an edited plan passes for optimal"
grep -q 'not those of this plan' err || fail "no warning: $(cat err)"

# Rules that need the model.
sed 's/"n_params": 3312/"n_params": 3313/; s/"count": 3312/"count": 3313/' plan.json >edited.json
status_is 2 check edited.json
grep -q 'n_params' err || fail "$(cat err)"
sed 's/"seq_len": 64}/"seq_len": 65}/' plan.json >edited.json
status_is 2 check edited.json
sed 's/"samples": 2/"samples": 4/; s/\[3, 3, 2\]/[5, 3]/; s/"samples": 3, "shard"/"samples": 5, "shard"/' \
    plan.json >edited.json
status_is 2 check edited.json
grep -q 'samples' err || fail "a size beyond the profile: $(cat err)"
done_checks
