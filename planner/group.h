/* Groups: the sets of GPUs that may form one stage, counted by class. */
#ifndef PLANNER_GROUP_H
#define PLANNER_GROUP_H

#include "planner/problem.h"

/* GPUs of one stage, by class. */
typedef struct zp_group {
    int counts[ZP_MAX_CLASSES];
    int n_gpus;
    bool intra; /* a chain piece of one node: placed inside it */
    double gib_per_s;
    double latency_ms;
    int below[ZP_MAX_CLASSES];      /* index of the next smaller group in this class; -1: none */
    bool relaxed;                   /* no group: the relaxation of many; counts are not set */
    double amounts[ZP_MAX_CLASSES]; /* of a relaxed one: GPUs by class */
} zp_group;

/* Of a class with more GPUs than this, groups of one class are pieces of a node or whole nodes. */
enum { ZP_MANY_GPUS = 64 };

/* Which groups are considered. Each set holds the one before it. */
typedef enum zp_mixing {
    ZP_MIX_NONE,  /* GPUs of one class */
    ZP_MIX_NODES, /* and whole nodes of several classes */
    ZP_MIX_ALL    /* any counts */
} zp_mixing;

typedef struct zp_groups {
    zp_mixing mixing;
    int n;
    zp_group *items; /* the listed ones, smaller groups first; then those added */
    int n_listed;
    int capacity;
    int n_slots;
    int *slots; /* hash table of those added: index, or -1 */
    zs_arena *arena;
} zp_groups;

/* Number of groups, as a double: it may be astronomical. */
double zp_groups_count(const zp_problem *problem, zp_mixing mixing);

/* intra, gib_per_s and latency_ms of the counts. */
void zp_group_set_link(zp_group *group, const zp_problem *problem);

/* In arena. */
ZS_MUST_CHECK bool zp_groups_build(zp_groups *out, zs_arena *arena, const zp_problem *problem,
                                   zp_mixing mixing, zs_error *err);

/* Link of the group's counts: intra, gib_per_s and latency_ms. */
void zp_group_set_link(zp_group *group, const zp_problem *problem);

/* Index of an equal group among those added, which it joins if there is none; relaxed ones always
 * do. below is not set. */
ZS_MUST_CHECK bool zp_groups_add(int *index, zp_groups *groups, const zp_group *group,
                                 zs_error *err);

/* Removes the groups from n on, which were added. */
void zp_groups_truncate(zp_groups *groups, int n);

#endif
