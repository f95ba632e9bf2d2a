# Helpers of the zplan scripts; sourced first, with the script's arguments: ZPLAN SOURCE_ROOT.
# Everything runs in an empty folder that is removed at the end.
set -u
zplan=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
source_root=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
n_checks=0
n_failed=0

fail() {
    n_failed=$((n_failed + 1))
    echo "failed: $*"
}

# status_is STATUS ARGUMENT...: runs zplan into the files out and err.
status_is() {
    expected=$1
    shift
    n_checks=$((n_checks + 1))
    "$zplan" "$@" >out 2>err
    status=$?
    [ "$status" -eq "$expected" ] && return 0
    fail "zplan $* ended with $status, expected $expected: $(head -c 400 err)"
    return 1
}

# refused STATUS TEXT ARGUMENT...: clean refusal with one line that holds TEXT and no plan.json.
refused() {
    text=$2
    expected=$1
    shift 2
    rm -f plan.json
    status_is "$expected" "$@" || return 1
    grep -q -F -- "$text" err || fail "zplan $*: expected \"$text\", got: $(head -c 400 err)"
    grep -c '^zplan: ' err | grep -q -x 1 || fail "zplan $*: not one message: $(head -c 400 err)"
    [ -s out ] && fail "zplan $*: text on stdout: $(head -c 200 out)"
    [ -e plan.json ] && fail "zplan $*: left plan.json behind"
    return 0
}

# equal WHAT GOT EXPECTED
equal() {
    n_checks=$((n_checks + 1))
    [ "$2" = "$3" ] || fail "$1: got \"$2\", expected \"$3\""
}

# The sizes of the micro-batches, the blocks of each stage ("first end" lines), one number.
micro_batches() {
    sed -n 's/.*"micro_batches": \[\(.*\)\].*/\1/p' "$1" | tr -d ' '
}
blocks() {
    sed -n 's/.*"forward": \[\([0-9]*\), \([0-9]*\)\].*/\1 \2/p' "$1"
}
number() {
    sed -n "s/.*\"$2\": \([-+.e0-9]*\).*/\1/p" "$1" | head -n 1
}

# model L [N_POSITIONS]: model.json, a GPT-2 of L blocks.
model() {
    cat >model.json <<END
{
  "format": "zplan-model", "version": 1, "family": "gpt2",
  "n_blocks": $1, "n_channels": 64, "n_heads": 4, "n_kv_heads": 4, "n_ffn": 256, "n_vocab": 257,
  "n_positions": ${2:-64}, "activation": "gelu_new", "norm_eps": 1e-5, "tied": true, "dropout": 0
}
END
}

# entry TYPE KIND POINTS: one entry of a profile; point SAMPLES FORWARD_MS BACKWARD_MS.
entry() {
    printf '{"device_type": "%s", "kind": "%s", "precision": "fp32", "seq_len": 64, "points": [%s]}' \
        "$1" "$2" "$3"
}
point() {
    printf '{"samples": %s, "forward_ms": %s, "backward_ms": %s}' "$1" "$2" "$3"
}
# profile ENTRIES: profile.json.
profile() {
    printf '{"format": "zplan-profile", "version": 1, "model": "m", "estimated": false,
 "source": "by hand", "entries": [%s]}\n' "$1" >profile.json
}
# Embedding and head of a type that take a nanosecond, for 1 to 64 samples.
free_ends() {
    free="$(point 1 1e-6 1e-6), $(point 2 1e-6 1e-6), $(point 8 1e-6 1e-6), $(point 64 1e-6 1e-6)"
    printf '%s, %s' "$(entry "$1" embedding "$free")" "$(entry "$1" head "$free")"
}

done_checks() {
    echo "$n_checks checks, $n_failed failed"
    [ "$n_checks" -gt 0 ] && [ "$n_failed" -eq 0 ]
    exit
}
