#!/bin/sh
# zplan bench: tables, and a gate that fails for every planted fault.
. "$(dirname "$0")/zplan_lib.sh"

mkdir cases
for name in quickstart gpt2-124m-desk opt-350m-a100-v100; do
    cp -r "$source_root/benchmarks/cases/$name" cases/
done

status_is 0 bench cases -q
equal "rows" "$(grep -c -E '^(quickstart|gpt2-124m-desk|opt-350m-a100-v100) ' out)" 6
equal "means" "$(grep -c '^geometric mean ' out)" 1
equal "columns" "$(awk 'length($0) > 80' out)" ""

status_is 0 bench cases -q --update golden.json
grep -q '^+ quickstart: ' out || fail "update shows nothing new"
cp golden.json first.json
status_is 0 bench cases -q --update golden.json
grep -q '^0 of 3 cases changed' out || fail "update shows changes: $(tail -n 3 out)"
cmp -s golden.json first.json || fail "the file differs from run to run"
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    status_is 0 bench cases -q --check golden.json
done

# planted TEXT PYTHON: golden.json changed by a line of Python must fail with TEXT.
planted() {
    python3 - "$2" <<'END'
import json, sys
g = json.load(open("first.json"))
c = g["cases"]
exec(sys.argv[1])
json.dump(g, open("golden.json", "w"))
END
    status_is 1 bench cases -q --check golden.json || return
    grep -q "$1" out || fail "$2: expected \"$1\" in: $(tail -n 4 out)"
    grep -q 'in plan quality' err || fail "$2: $(cat err)"
}
planted 'is not among the known cases' 'del c[1]'
planted 'was not run' 'c.append(dict(c[0], name="gone"))'
planted '3.09 % slower' 'c[0]["step_ms"] *= 0.97; c[0]["lower_bound_ms"] *= 0.97'
planted 'nothing is faster' 'c[0]["step_ms"] *= 30; c[0]["lower_bound_ms"] *= 30'
planted 'integer programs' 'c[2]["n_solves"] = 0'
status_is 2 bench cases -q --check nothing.json
: >empty.json
status_is 2 bench cases -q --check empty.json
sed 's/"step_ms": [0-9.e+]*/"step_ms": NaN/' first.json >golden.json
status_is 2 bench cases -q --check golden.json

# A case that changed without its figures; one that has no plan any more.
cp first.json golden.json
sed 's/"global_batch": 32/"global_batch": 64/' cases/quickstart/job.json >job.json
cmp -s job.json cases/quickstart/job.json && fail "the batch did not change"
cp cases/quickstart/job.json kept.json
mv job.json cases/quickstart/job.json
status_is 1 bench cases -q --check golden.json
grep -q '^quickstart: step time' out || fail "a changed case: $(tail -n 4 out)"
sed 's/"context": "1MiB"/"context": "1GiB"/' kept.json >cases/quickstart/job.json
status_is 1 bench cases -q --check golden.json
grep -q '^quickstart: no feasible plan' out || fail "a case without a plan: $(tail -n 4 out)"
status_is 1 bench cases -q --update golden.json
cmp -s golden.json first.json || fail "update wrote a case without a plan"
cp kept.json cases/quickstart/job.json

# Left out by name only; a name that does not exist is refused.
status_is 0 bench cases -q --update some.json --leave-out quickstart
status_is 0 bench cases -q --check some.json
grep -q '^left out: quickstart$' out || fail "left out in silence"
refused 2 quickstar bench cases -q --update other.json --leave-out quickstar
refused 2 exclude bench cases -q --update other.json --check golden.json
mkdir none
refused 2 job.json bench none
done_checks
