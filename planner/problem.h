/* clang-format off */
/* The assignment problem in the notation of the paper: sets and constants, no names of files or
 * machines. Units: ms, GiB, GiB/s, so that coefficients stay near 1. GPUs are counted by class,
 * never named: identical GPUs are interchangeable.
 *
 *   class k       GPU type in one kind of node: n_nodes * gpus_per_node GPUs; one with b_max = 0
 *                 cannot run the model and is in no stage
 *   stage s       n_s blocks, counts c_k of GPUs, samples b_i, ZeRO level, recompute
 *   tau_i(b)      max(compute + (1 - overlap_send) link, link) + sends send_latency_ms_k,
 *                 tau_i(0) = 0; sends: 2 middle, 1 first or last, 0 when there is one stage
 *   compute       n (f_k[b] (recompute ? 2 : 1) + g_k[b]) + [first] e_k[b] + [last] h_k[b]
 *   link          sends boundary_gib b 1000 / (nic_k / gpus_per_node_k)
 *   comp_s        max_i tau_i(b_i)
 *   phi           (G - 1) / G for G GPUs in the stage
 *   bw            intra_k when the group is a chain piece of one node of one class (size 1, or a
 *                 power of two that divides gpus_per_node, or the whole node); else the least
 *                 min(intra, nic) of its members
 *   t_s           max(comp, (1 - overlap_zero) comp + phi V / bw 1000 + latency)
 *   sync_s        phi V_sync / bw 1000 + latency
 *   T             sum_s t_s + (m - 1) max_s t_s + max_s sync_s
 *   memory of i   repl + z_i shard + b_i act <= M_k, also repl <= M_k where b_i = 0
 *   act           w ((recompute ? n act_ckpt_gib : n act_gib) + output_gib)
 *                 + (recompute ? act_gib : 0) + [last] logits_gib + workspace_gib,
 *                 w = min(m, S - s) in flight at stage s = 0..S-1
 *   latency       collectives[zero] (G - 1) latency_ms of the link (as for bw: intra, else the
 *                 largest max(intra, nic) of the members), 0 when phi V = 0 */
/* clang-format on */
#ifndef PLANNER_PROBLEM_H
#define PLANNER_PROBLEM_H

#include "shared/arena.h"

enum { ZP_MAX_CLASSES = 16 };

typedef enum zp_kind { ZP_FIRST, ZP_MIDDLE, ZP_LAST, ZP_SINGLE, ZP_N_KINDS } zp_kind;

/* What a stage's state is made of: each of its n blocks, and the extra of its kind (embedding on a
 * first, head on a last, both on a single stage, nothing on a middle one). */
typedef enum zp_part {
    ZP_PART_BLOCK,
    ZP_PART_FIRST,
    ZP_PART_LAST,
    ZP_PART_SINGLE,
    ZP_N_PARTS
} zp_part;

typedef struct zp_zero {
    bool allowed;
    double repl_gib[ZP_N_PARTS]; /* on every GPU; summed, for level 3 the largest (block or extra):
                                    the caller puts two gathered layers' worth there */
    double working_gib[ZP_N_PARTS]; /* on every GPU beside them, at every level: the largest of the
                                       stage's parts (one layer's whole gradient); part of
                                       repl in all formulas */
    double shard_gib[ZP_N_PARTS];   /* divided among the GPUs of the stage */
    double volume_gib[ZP_N_PARTS];  /* V: moved per micro-batch */
    double sync_volume_gib[ZP_N_PARTS]; /* V_sync: moved after the last micro-batch */
    int collectives;                    /* per micro-batch, for latency */
    int sync_collectives;               /* after the last micro-batch */
} zp_zero;

typedef struct zp_class {
    const char *gpu;
    int n_nodes;
    int gpus_per_node;
    double memory_gib; /* M: usable, after context and reserve */
    double intra_gib_per_s;
    double nic_gib_per_s; /* of the node */
    double intra_latency_ms;
    double nic_latency_ms;
    double send_latency_ms;
    /* Tables by samples: [b] for 1 <= b <= b_max; [0] is 0. A size that is not offered is
     * infinity in forward_ms. Non-decreasing tables are not required. */
    int b_max;
    const double *forward_ms;
    const double *backward_ms;
    const double *embed_ms; /* forward + backward */
    const double *head_ms;
} zp_class;

typedef struct zp_batching {
    int micro_batch;     /* u: samples of the largest micro-batch */
    int n_micro_batches; /* m; every micro-batch is charged as if it had u samples */
} zp_batching;

typedef struct zp_problem {
    int n_blocks;
    int n_classes;
    zp_class classes[ZP_MAX_CLASSES];
    zp_zero zero[4];      /* [1], [2], [3] */
    double act_gib;       /* per block and sample in flight */
    double act_ckpt_gib;  /* the same under recompute: the block's input */
    double logits_gib;    /* per sample on the last or single stage */
    double output_gib;    /* per sample in flight, once per stage: its output */
    double workspace_gib; /* per sample on every stage: send and receive buffers, scratch */
    double boundary_gib;  /* sent across a stage boundary per sample, each way */
    double overlap_zero;
    double overlap_send;
    bool recompute_none; /* allowed choices; at least one */
    bool recompute_full;
    int min_stages, max_stages;
    int max_gpus_per_stage; /* 0: no limit */
    int n_batchings;
    const zp_batching *batchings; /* candidates for (u, m) */
} zp_problem;

/* A stage of a solution with every GPU explicit (GPUs of a class are listed one after the other,
 * more samples first). */
typedef struct zp_member {
    int class;
    int samples;        /* b_i */
    double shard_share; /* z_i, sum 1 over the stage; in proportion to free memory */
} zp_member;

typedef struct zp_stage {
    int n_blocks;
    int zero; /* 1, 2, 3 */
    bool recompute;
    bool intra; /* the group is placed inside one node (chain piece), priced at its speed */
    int n_members;
    zp_member *members;
} zp_stage;

typedef struct zp_solution {
    zp_batching batching;
    int n_stages;
    zp_stage *stages;       /* in pipeline order; in arena */
    double step_ms;         /* T, recomputed by zp_evaluate */
    double lower_bound_ms;  /* no assignment at all is faster */
    const char *groups;     /* what the search let a stage consist of: "any GPUs", ... */
    double groups_bound_ms; /* no assignment of such groups is faster; >= lower_bound_ms */
    bool time_limit;        /* stopped early: lower_bound_ms is valid, step_ms the best so far */
    int64_t n_solves;       /* integer programs */
    int64_t n_nodes;        /* branch-and-bound nodes in them */
} zp_solution;

/* Every constant in range; names the field. */
ZS_MUST_CHECK bool zp_problem_check(const zp_problem *problem, zs_error *err);

/* The kind of stage s of n_stages, and its sums over parts for a zero level. */
zp_kind zp_problem_kind(int stage, int n_stages);
double zp_problem_repl_gib(const zp_problem *p, int zero, zp_kind kind, int n_blocks);
double zp_problem_shard_gib(const zp_problem *p, int zero, zp_kind kind, int n_blocks);
double zp_problem_volume_gib(const zp_problem *p, int zero, zp_kind kind, int n_blocks);
double zp_problem_sync_volume_gib(const zp_problem *p, int zero, zp_kind kind, int n_blocks);

/* Is a group of c GPUs a chain piece of a node of g? */
bool zp_problem_is_chain_piece(int c, int g);

#endif
