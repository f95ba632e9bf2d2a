#!/bin/sh
# Time limits and Ctrl-C end with the best plan so far, its bound and its gap.
. "$(dirname "$0")/zplan_lib.sh"

large="--cluster 8x(8xA100-80)+8x(8xV100-32) --model llama-7b --seq 2048 --batch 512"

# ended_with_plan FILE: a plan whose numbers agree
ended_with_plan() {
    status_is 0 check "$1"
    grep -E -q '"status": "(time_limit|optimal|feasible)"' "$1" || fail "$1: status $(grep status "$1")"
    equal "$1: gap = (objective - bound) / objective" "$(awk '
        /"objective_ms":/ { objective = $2 + 0 }
        /"lower_bound_ms":/ { bound = $2 + 0 }
        /"gap":/ { gap = $2 + 0 }
        END { d = gap - (objective - bound) / objective
              print (bound > 0 && gap >= 0 && d < 1e-9 && d > -1e-9) }' "$1")" 1
}

# One second of grace for building the problem, one for the clock of whole seconds.
for limit in 1 3; do
    begin=$(date +%s)
    status_is 0 solve $large --time-limit ${limit}s -q -o limited.json
    took=$(($(date +%s) - begin))
    equal "no longer than $limit s and grace (took $took)" "$((took <= limit + 2))" 1
    ended_with_plan limited.json
done

# Far from proven within two seconds.
large="--cluster 8x(8xA100-80G)+8x(8xV100-32G)+16x(8xA100-40G)+8x(4xT4)+16x(8xH100-80G) \
    --model opt-66b --seq 2048 --batch 2048"
n_checks=$((n_checks + 1))
"$zplan" solve $large --time-limit 100s -q -o interrupted.json 2>err &
pid=$!
sleep 2
kill -INT $pid
wait $pid
status=$?
equal "status after Ctrl-C" "$status" 0
ended_with_plan interrupted.json
grep -q '"status": "time_limit"' interrupted.json || fail "an interrupted search was called optimal"
done_checks
