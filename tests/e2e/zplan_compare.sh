#!/bin/sh
# zplan compare: our plan beside simple rules, as a table and as JSON.
. "$(dirname "$0")/zplan_lib.sh"

job=$source_root/benchmarks/cases/quickstart/job.json
status_is 0 compare --job "$job" -q
cp out table
equal "rows" "$(grep -c -E '^(zplan|even split|layers by speed|pipeline only|mixed stages) ' table)" 5
equal "columns" "$(awk 'length($0) > 80' table | head -n 1)" ""
equal "excluded by the job" "$(grep -c 'excludes its ZeRO level' table)" 3

# The step time is that of the plan that solve writes.
status_is 0 solve --job "$job" -o plan.json -q
status_is 0 compare --job "$job" --json -q
cp out comparison.json
ours=$(number comparison.json step_ms)
equal "step time" "$(awk -v a="$ours" -v b="$(number plan.json step_ms)" \
    'BEGIN { print (a > 0 && (a - b) ^ 2 <= (1e-9 * b) ^ 2) }')" 1
python3 - comparison.json <<'END' >verdict || fail "comparison.json: $(cat verdict)"
import json, sys
c = json.load(open(sys.argv[1]))
assert c["format"] == "zplan-comparison" and c["version"] == 1
ours = c["zplan"]["step_ms"]
assert 0 < c["zplan"]["lower_bound_ms"] <= ours
assert len(c["baselines"]) == 7
for b in c["baselines"]:
    if b["feasible"]:
        assert abs(b["speed_up"] - b["step_ms"] / ours) < 1e-9 and b["speed_up"] > 1 - 1e-9
        assert 0 < b["memory_share"] <= 1 and 0 <= b["bubble_share"] < 1
    else:
        assert b["why_not"]
END

# What does not fit says what it needs, has and misses.
status_is 0 compare --cluster "1x(1xA100-80)+4x(1xT4)" --model llama-7b --seq 1024 --batch 8 \
    -q
grep -q 'no room: T4 needs [0-9.]* GiB, has [0-9.]*, missing' out || fail "no reason: $(cat out)"
equal "columns" "$(awk 'length($0) > 80' out | head -n 1)" ""

# No plan at all; wrong use.
refused 3 "no feasible plan" compare --cluster "1x(1xT4)" --model llama-7b --seq 1024 --batch 4
refused 2 cluster compare --model tiny --seq 64 --batch 4
refused 2 output compare --job "$job" --output x.json
done_checks
