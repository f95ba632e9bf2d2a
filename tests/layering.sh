#!/bin/sh
# Checks the arrows between the folders from the #include lines. Usage: layering.sh SOURCE_ROOT
set -u
cd "$1" || exit 1

find shared models planner executor tests benchmarks -type f \
    \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' -o -name '*.c.in' \) 2>/dev/null |
    LC_ALL=C sort >"${TMPDIR:-/tmp}/layering.$$" || exit 1
trap 'rm -f "${TMPDIR:-/tmp}/layering.$$"' EXIT

xargs awk '
function fail(message) {
    printf "%s:%d: %s\n", FILENAME, FNR, message
    n_failed++
}
# Who may include whom.
function allowed(from, to) {
    if (from == "tests" || from == "benchmarks")
        return 1
    if (from == "shared")
        return to == "shared"
    if (from == "models")
        return to == "shared" || to == "models"
    return to == "shared" || to == "models" || to == from
}
function only(header, files) {
    if (included == header && FILENAME !~ files)
        fail("<" header "> belongs to " files " only")
}
FNR == 1 {
    n_files++
    first = 1
    folder = FILENAME
    sub(/\/.*/, "", folder)
    own = ""
    if (FILENAME ~ /\.(c|cu)$/) {
        own = FILENAME
        sub(/\.(c|cu)$/, ".h", own)
        if ((getline line < own) < 0)
            own = ""
        else
            close(own)
    }
}
/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
    n_includes++
    quoted = $0 ~ /include[ \t]*"/
    included = $0
    sub(/^[^<"]*[<"]/, "", included)
    sub(/[>"].*/, "", included)
    if (first && own != "" && included != own)
        fail("the first include is \"" included "\", expected the own header \"" own "\"")
    first = 0
    only("glpk.h", "^planner/solver_glpk\\.c$")
    only("cjson/cJSON.h", "^shared/json[a-z_]*\\.[ch]$")
    only("cJSON.h", "^shared/json[a-z_]*\\.[ch]$")
    only("mpi.h", "^executor/comm_mpi\\.c$")
    only("nccl.h", "^executor/comm_nccl\\.(c|cu)$")
    only("cblas.h", "^executor/(cpu/|backend_cpu\\.c$)")
    if (included ~ /^(cuda|cublas)/ && FILENAME !~ /^(executor|tests|benchmarks)\//)
        fail("CUDA belongs to the executor")
    if (!quoted || included == "config.h")
        next
    to = included
    if (to !~ /^(shared|models|planner|executor|tests|benchmarks)\//) {
        fail("\"" included "\" is not written from the root")
        next
    }
    sub(/\/.*/, "", to)
    if (!allowed(folder, to))
        fail(folder " may not include \"" included "\"")
}
END {
    printf "%d files, %d includes, %d failed\n", n_files, n_includes, n_failed
    exit n_failed > 0 || n_includes == 0
}' <"${TMPDIR:-/tmp}/layering.$$"
