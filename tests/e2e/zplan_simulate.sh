#!/bin/sh
# zplan simulate: picture, files, conditions; the simulated step time in plans and explanations.
. "$(dirname "$0")/zplan_lib.sh"

model 6
profile "$(entry T4 block "$(point 1 1 2), $(point 64 64 128)"), $(free_ends T4)"
cat >cluster.json <<'END'
{"format": "zplan-cluster", "version": 1, "name": "c",
 "nodes": [{"devices": [{"type": "T4"}], "count": 3, "nic": "10Gb/s"}]}
END
status_is 0 solve --cluster cluster.json --model model.json --profile profile.json --batch 8 \
    --seq 64 --stages 3 -o plan.json
n_ranks=$(grep -c '"device_memory_bytes"' plan.json)
simulated=$(number plan.json simulated_step_ms)
[ -n "$simulated" ] || fail "solve wrote no simulated_step_ms"

status_is 0 explain plan.json
grep -q "^Simulated step " out || fail "explain shows no simulated step: $(head -n 8 out)"

status_is 0 simulate plan.json --trace trace.json --csv timeline.csv
equal "rows of the picture" "$(grep -c '|$' out)" "$n_ranks"
awk 'length($0) > 80 { exit 1 }' out || fail "lines beyond 80 columns"
head -n 1 timeline.csv | grep -q -x 'rank,stage,lane,op,micro_batch,peer,start_ms,end_ms' ||
    fail "head of the table: $(head -n 1 timeline.csv)"
equal "end of the table" "$(awk -F, 'NR > 1 && $8 > end { end = $8 } END { printf "%.6f", end }' timeline.csv)" \
    "$(awk "BEGIN { printf \"%.6f\", $simulated }")"
equal "events" "$(grep -o '"ph": "X"' trace.json | wc -l)" "$(($(wc -l <timeline.csv) - 1))"
cp timeline.csv first.csv
status_is 0 simulate plan.json --csv - --trace trace.json
cmp -s out first.csv || fail "another table on stdout"

# Slower is not faster, and the change is shown.
status_is 0 simulate plan.json --what-if "T4 slower 100%"
grep -q '^As planned ' out || fail "no comparison: $(head -n 3 out)"
status_is 0 simulate plan.json --csv slow.csv -q --what-if "node1:gpu0 slower 25%, nic node0 half"
[ -s out ] && fail "text on stdout in spite of -q"
awk -F, 'NR > 1 && $8 > end { end = $8 } END { exit !(end > '"$simulated"') }' slow.csv ||
    fail "slower GPU and link do not take longer"
cp plan.json kept.json
refused 2 '"nic node7 half"' simulate kept.json --what-if "nic node7 half"
refused 2 'missing.json' simulate missing.json

# A plan without the field is as good; a wrong one is named.
sed '/"simulated_step_ms"/d' kept.json >without.json
status_is 0 simulate without.json
sed 's/"simulated_step_ms": [0-9.e+-]*/"simulated_step_ms": 1/' kept.json >wrong.json
status_is 0 explain wrong.json
grep -q 'simulated step time: stored 1 ms' err || fail "no warning: $(cat err)"
sed 's/"simulated_step_ms": [0-9.e+-]*/"simulated_step_ms": -1/' kept.json >wrong.json
refused 2 'simulated_step_ms' simulate wrong.json
done_checks
