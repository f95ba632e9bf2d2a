#!/bin/sh
# zexec reads plans as strictly as zplan, and what it writes has "." in numbers under any locale.
# Usage: zexec_json.sh ZPLAN SOURCE_ROOT ZEXEC
zexec=$(cd "$(dirname "$3")" && pwd)/$(basename "$3")
. "$(dirname "$0")/zplan_lib.sh"

awk 'BEGIN { for (i = 0; i < 9000; i++) printf "%c", 32 + (i * i + i) % 90 }' >text.txt
"$zexec" convert text text.txt -o text.bin >out 2>err || fail "convert: $(cat err)"
status_is 0 solve --cluster "1x(2xT4)" --model tiny --seq 64 --batch 4 --stages 2 --zero 1 -q \
    -o good.json

# bad TEXT COMMAND...: the plan through COMMAND is refused with file and place, before any rank
bad() {
    n_checks=$((n_checks + 1))
    text=$1
    shift
    "$@" <good.json >edited.json
    cmp -s good.json edited.json && fail "$* changed nothing"
    "$zexec" run edited.json --data text.bin --steps 1 -q --out refused --save refused.safetensors \
        >out 2>err
    status=$?
    [ "$status" -eq 2 ] || fail "$*: ended with $status, expected 2: $(head -c 300 err)"
    grep -c '^zexec: ' err | grep -q -x 1 && [ "$(wc -l <err)" -eq 1 ] ||
        fail "$*: not one message: $(head -c 300 err)"
    grep -q -F -- "$text" err || fail "$*: expected \"$text\": $(head -c 300 err)"
    [ -s out ] && fail "$*: text on stdout: $(head -c 200 out)"
    [ -e refused ] || [ -e refused.safetensors ] && fail "$*: left a file"
}
bad edited.json sed '$s/$/}/'
bad edited.json sed '$s/$/ x/'
bad 'duplicate key "n_blocks"' sed 's/"n_blocks": \([0-9]*\)/"n_blocks": \1, "n_blocks": 24/'
bad Samples sed 's/"samples"/"Samples"/'
bad samplez sed 's/"samples"/"samplez"/'
bad n_blocks sed 's/"n_blocks": [0-9]*/"n_blocks": 12.5/'
bad n_blocks sed 's/"n_blocks": [0-9]*/"n_blocks": "12"/'
bad n_params sed 's/"n_params": [0-9]*/"n_params": 9007199254740993/'
bad edited.json sed 's/"lower_bound_ms": [0-9.e-]*/"lower_bound_ms": 0,5/'
bad edited.json sed 's/"lower_bound_ms": [0-9.e-]*/"lower_bound_ms": NaN/'
bad edited.json sed 's/"lower_bound_ms": [0-9.e-]*/"lower_bound_ms": 1e999/'
bad edited.json head -c 100
bad edited.json sed -n '/never/p'
bad edited.json sed -n '1s/.*/[]/p'

# train FOLDER: the stable part of the metrics and the weights
train() {
    n_checks=$((n_checks + 1))
    "$zexec" run good.json --data text.bin --eval text.bin --steps 2 -q --threads 1 --lr 0.5e-3 \
        --out "$1" --save "$1.safetensors" >"$1.out" 2>err || fail "$1: $(head -c 300 err)"
    sed 's/"[a-z_]*_\(ms\|per_s\)": [0-9.e+-]*//g' "$1/metrics.jsonl" >"$1.metrics"
    sed 's/| [0-9.,]* tokens.s |.*//; s/ in [0-9.,]* s, / /; s/| [0-9.,]* ms$//' "$1.out" >"$1.text"
}
if command -v localedef >/dev/null &&
    localedef -i de_DE -f UTF-8 ./de_DE.UTF-8 2>locale.log; then
    export LOCPATH="$work"
    [ "$(LC_ALL=de_DE.UTF-8 locale decimal_point)" = , ] || fail "the locale has no decimal comma"
    LC_ALL=C train point
    LC_ALL=de_DE.UTF-8 LANG=de_DE.UTF-8 train comma
    for kind in metrics text safetensors; do
        cmp point.$kind comma.$kind || fail "$kind differs between locales"
    done
    grep -q -E '"loss": [0-9]+\.[0-9]' comma/metrics.jsonl || fail "no decimal point in the metrics"
    equal "the learning rate 0.5e-3 of step 1" "$(sed -n '1s/.*"lr": \([0-9.e-]*\).*/\1/p' \
        comma.metrics)" 0.0005
    n_checks=$((n_checks + 1))
    LC_ALL=de_DE.UTF-8 "$zexec" run good.json --data text.bin --lr 0,5 >out 2>err
    [ $? -eq 2 ] && grep -q '"0,5"' err || fail "0,5 was read: $(head -c 300 err)"
else
    echo "de_DE cannot be made here: locales not compared"
fi
done_checks
