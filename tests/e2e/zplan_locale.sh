#!/bin/sh
# Equal inputs give equal bytes, on every run and in a locale with a decimal comma.
. "$(dirname "$0")/zplan_lib.sh"

model 6
profile "$(entry A100-80 block "$(point 1 0.5 1.25), $(point 64 20.5 41.75)"),
 $(free_ends A100-80), $(entry T4 block "$(point 1 2.5 5), $(point 64 120.5 240)"), $(free_ends T4)"
given="--cluster 1x(2xA100-80)+1x(3xT4)@25Gb/s --model model.json --profile profile.json
 --seq 64 --batch 12 --overlap-zero 0.5"
LC_ALL=C status_is 0 solve $given -o first.json
LC_ALL=C status_is 0 solve $given -o second.json
LC_ALL=de_DE.UTF-8 LANG=de_DE.UTF-8 LC_NUMERIC=de_DE.UTF-8 status_is 0 solve $given -o comma.json
cmp first.json second.json || fail "two runs differ"
cmp first.json comma.json || fail "locales differ"
equal "0.5 is read as 0.5" "$(number first.json forward_ms)" 0.5
LC_ALL=de_DE.UTF-8 status_is 0 explain first.json
cp out explained
LC_ALL=C status_is 0 explain first.json
cmp out explained || fail "explanations differ between locales"
equal "widest line of explain" "$(awk 'length($0) > 80' out)" ""
LC_ALL=de_DE.UTF-8 refused 2 overlap-zero solve $given --overlap-zero 0,5

# A plan made from a plan's own inputs, in another order of equal things, has the same step time.
LC_ALL=C status_is 0 solve --cluster "1x(3xT4)@25Gb/s+1x(2xA100-80)" --model model.json \
    --profile profile.json --seq 64 --batch 12 --overlap-zero 0.5 -o swapped.json
equal "order of nodes" "$(number swapped.json step_ms | cut -c 1-9)" \
    "$(number first.json step_ms | cut -c 1-9)"
done_checks
