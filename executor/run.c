#include "executor/run.h"

#include "executor/stop.h"

#include <inttypes.h>
#include <math.h>

/* Batches of an evaluation between two looks for a stop: about a step's time, as a forward pass is
 * a third of one. Looking waits for the whole pipeline. */
enum { EVAL_BATCHES_PER_LOOK = 3 };

enum { TAG_ACT = 1, TAG_GRAD = 2 };

int64_t zx_run_global_batch(const zs_plan *plan)
{
    int64_t sum = 0;
    for (int i = 0; i < plan->n_micro_batches; i++)
        sum += plan->micro_batches[i];
    return sum;
}

static bool check_stage(const zs_plan *plan, const zm_model *model, int stage, zs_error *err)
{
    const zs_plan_stage *s = &plan->stages[stage];
    const char *place = "$.stages";
    if (s->forward.first != s->backward.first || s->forward.end != s->backward.end)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s[%d]: forward of blocks [%d,%d) but backward of [%d,%d); this executor "
                       "runs both passes of a block on one stage",
                       place, stage, s->forward.first, s->forward.end, s->backward.first,
                       s->backward.end);
    const int64_t n_params = zm_stage_n_params(model, s->forward.first, s->forward.end);
    if (s->n_params != n_params)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s[%d].n_params is %" PRId64 ", but %sblocks [%d,%d)%s of model %s have "
                       "%" PRId64 " parameters",
                       place, stage, s->n_params, stage == 0 ? "the embedding, " : "",
                       s->forward.first, s->forward.end,
                       stage == plan->n_stages - 1 ? " and the head" : "", model->name, n_params);
    return true;
}

bool zx_run_check(const zs_plan *plan, const zm_model *model, zs_error *err)
{
    if (plan->job.precision != ZS_FP32)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "$.job.precision is %s; the cpu backend trains in fp32 (plan with "
                       "--precision fp32)",
                       zs_precision_names[plan->job.precision]);
    if (plan->n_blocks != model->n_blocks)
        return ZS_FAIL(err, ZS_ERR_INPUT, "the plan places blocks [0,%d), its model %s has %d",
                       plan->n_blocks, model->name, model->n_blocks);
    for (int stage = 0; stage < plan->n_stages; stage++)
        if (!check_stage(plan, model, stage, err))
            return false;
    return zm_model_check_seq_len(model, plan->job.seq_len, err);
}

/* Instructions. Each function does or starts its own; the walk has waited for those before. */

typedef bool (*run_fn)(zx_run *r, const zs_instruction *in, zx_request **request, zs_error *err);

/* First sample of an instruction, counted from this rank's own first. */
static int own_offset(const zx_run *r, const zs_instruction *in)
{
    return in->first_sample - r->walk.list->own_first[in->micro_batch];
}

static int64_t n_elements(const zx_run *r, const zs_instruction *in)
{
    return (int64_t)(in->end_sample - in->first_sample) * r->stage.seq_len * r->model->n_channels;
}

static bool run_recv_act(zx_run *r, const zs_instruction *in, zx_request **request, zs_error *err)
{
    return r->comm->ops->irecv(r->comm, request,
                               zx_stage_input(&r->stage, in->slot, own_offset(r, in)),
                               n_elements(r, in), in->peer, TAG_ACT, err);
}

static bool run_send_act(zx_run *r, const zs_instruction *in, zx_request **request, zs_error *err)
{
    return r->comm->ops->isend(r->comm, request,
                               zx_stage_output(&r->stage, in->slot, own_offset(r, in)),
                               n_elements(r, in), in->peer, TAG_ACT, err);
}

static bool run_recv_grad(zx_run *r, const zs_instruction *in, zx_request **request, zs_error *err)
{
    zx_real *to = zx_stage_output_grad(&r->stage, in->micro_batch, own_offset(r, in));
    return r->comm->ops->irecv(r->comm, request, to, n_elements(r, in), in->peer, TAG_GRAD, err);
}

static bool run_send_grad(zx_run *r, const zs_instruction *in, zx_request **request, zs_error *err)
{
    const zx_real *from = zx_stage_input_grad(&r->stage, in->micro_batch, own_offset(r, in));
    return r->comm->ops->isend(r->comm, request, from, n_elements(r, in), in->peer, TAG_GRAD, err);
}

static bool run_forward(zx_run *r, const zs_instruction *in, zx_request **request, zs_error *err)
{
    (void)request;
    zx_walk *w = &r->walk;
    const int B = in->end_sample - in->first_sample;
    if (B > 0) {
        const zx_slot *slot = &r->stage.slots[in->slot];
        const int64_t position =
            w->position + w->list->first_samples[in->micro_batch] + in->first_sample;
        zx_data_read(w->data, slot->tokens, slot->targets, w->order, r->options.seed, position, B);
    }
    return zx_pass_forward(&r->zero, &w->loss_sum, in->slot, B, w->list->schedule.training,
                           w->scale, err) &&
           r->backend->ops->sync(r->backend, err);
}

static bool run_backward(zx_run *r, const zs_instruction *in, zx_request **request, zs_error *err)
{
    (void)request;
    return zx_pass_backward(&r->zero, &r->walk.loss_sum, in->slot, in->micro_batch,
                            in->end_sample - in->first_sample, r->walk.scale, err) &&
           r->backend->ops->sync(r->backend, err);
}

static bool run_reduce_grads(zx_run *r, const zs_instruction *in, zx_request **request,
                             zs_error *err)
{
    (void)in, (void)request;
    return zx_zero_reduce(&r->zero, ZX_SEGMENT_OWN, err);
}

static bool run_reduce_tied(zx_run *r, const zs_instruction *in, zx_request **request,
                            zs_error *err)
{
    (void)in, (void)request;
    return zx_zero_reduce(&r->zero, ZX_SEGMENT_TIED, err);
}

/* The loss goes along, and whether to stop: one all-reduce tells all ranks all. */
static bool run_grad_norm(zx_run *r, const zs_instruction *in, zx_request **request, zs_error *err)
{
    (void)in, (void)request;
    double sums[3] = {0, r->walk.loss_sum, zx_stop_wanted()};
    if (!zx_zero_sum_of_squares(&r->zero, &sums[0], err) ||
        !r->comm->ops->all_reduce(r->comm, NULL, sums, 3, err))
        return false;
    r->stop = sums[2] > 0;
    r->result.grad_norm = sqrt(sums[0]);
    r->result.loss = sums[1] * r->walk.scale;
    r->diverged = !isfinite(r->result.loss) || !isfinite(r->result.grad_norm);
    if (r->diverged)
        return ZS_FAIL(err, ZS_ERR_RUNTIME,
                       "step %" PRId64 ": loss %g, grad_norm %g: training diverged; lower --lr, or "
                       "set --clip or --warmup",
                       r->result.step, fabs(r->result.loss), fabs(r->result.grad_norm));
    return true;
}

static bool run_step(zx_run *r, const zs_instruction *in, zx_request **request, zs_error *err)
{
    (void)in, (void)request;
    return zx_optimizer_step(&r->optimizer, r->result.lr,
                             zx_clip_scale(r->result.grad_norm, r->options.clip), err) &&
           r->backend->ops->sync(r->backend, err);
}

static bool run_gather_params(zx_run *r, const zs_instruction *in, zx_request **request,
                              zs_error *err)
{
    (void)in, (void)request;
    return zx_zero_gather(&r->zero, ZX_SEGMENT_OWN, err);
}

static bool run_gather_tied(zx_run *r, const zs_instruction *in, zx_request **request,
                            zs_error *err)
{
    (void)in, (void)request;
    return zx_zero_gather(&r->zero, ZX_SEGMENT_TIED, err);
}

static const run_fn run_table[ZS_N_OPS] = {
#define OP(name, symbol, lane) [ZS_OP_##symbol] = run_##name,
    ZS_OPS(OP)
#undef OP
};

/* The walk. */

static bool fail_instruction(const zs_instruction *in, zs_error *err)
{
    char text[ZS_INSTRUCTION_TEXT_SIZE];
    return zs_error_prefix(err, "%s", zs_instruction_text(text, in));
}

/* All that the instruction waits for was run and arrived. */
static bool is_free(const zx_walk *w, const zs_instruction *in)
{
    for (int i = 0; i < in->n_waits; i++)
        if (in->waits[i] >= w->current || w->requests[in->waits[i]])
            return false;
    return true;
}

/* Posts receives, in the list's order, as far as their buffers are free. */
static bool post_receives(zx_run *r, zs_error *err)
{
    zx_walk *w = &r->walk;
    const zs_program *program = w->list->program;
    for (; w->next_receive < program->n_instructions; w->next_receive++) {
        const int i = w->next_receive;
        const zs_instruction *in = &program->instructions[i];
        if (zs_op_lanes[in->op] != ZS_LANE_RECV || w->posted[i])
            continue;
        if (!is_free(w, in))
            return true;
        w->posted[i] = true;
        if (!run_table[in->op](r, in, &w->requests[i], err))
            return fail_instruction(in, err);
    }
    return true;
}

static bool run_instruction(zx_run *r, int index, zs_error *err)
{
    zx_walk *w = &r->walk;
    const zs_instruction *in = &w->list->program->instructions[index];
    for (int i = 0; i < in->n_waits; i++)
        if (w->requests[in->waits[i]] &&
            !r->comm->ops->wait(r->comm, &w->requests[in->waits[i]], err))
            return fail_instruction(in, err);
    if (zs_op_lanes[in->op] == ZS_LANE_COMPUTE && !post_receives(r, err))
        return false;
    if (w->posted[index])
        return true;
    w->posted[index] = true;
    if (!run_table[in->op](r, in, &w->requests[index], err))
        return fail_instruction(in, err);
    return true;
}

static bool walk(zx_run *r, const zx_list *list, const zx_data *data, zx_data_order order,
                 int64_t position, int64_t n_samples, zs_error *err)
{
    zx_walk *w = &r->walk;
    const int n = list->program->n_instructions;
    w->list = list;
    w->data = data;
    w->order = order;
    w->position = position;
    w->scale = 1.0 / ((double)n_samples * r->stage.seq_len);
    w->loss_sum = 0;
    w->next_receive = 0;
    for (int i = 0; i < n; i++)
        w->posted[i] = false;
    for (w->current = 0; w->current < n; w->current++)
        if (!run_instruction(r, w->current, err))
            return false;
    for (int i = 0; i < n; i++)
        if (w->requests[i] && !r->comm->ops->wait(r->comm, &w->requests[i], err))
            return fail_instruction(&list->program->instructions[i], err);
    return true;
}

/* Fills in what the walk needs beside the schedule, which is there and checked. */
static bool open_list(zx_list *list, zx_run *r, zs_error *err)
{
    const int m = list->schedule.n_micro_batches;
    if (!zs_schedule_check(&list->schedule, r->plan, err))
        return zs_error_prefix(err, "schedule");
    list->program = &list->schedule.programs[r->comm->rank];
    list->first_samples = ZS_NEW(r->arena, int, m, err);
    list->own_first = ZS_NEW(r->arena, int, m, err);
    if (!list->first_samples || !list->own_first)
        return false;
    for (int i = 1; i < m; i++)
        list->first_samples[i] = list->first_samples[i - 1] + list->schedule.micro_batches[i - 1];
    for (int i = 0; i < list->program->n_instructions; i++) {
        const zs_instruction *in = &list->program->instructions[i];
        if (in->op == ZS_OP_FORWARD)
            list->own_first[in->micro_batch] = in->first_sample;
    }
    return true;
}

static bool open_eval_list(zx_list *list, zx_run *r, int n_samples, zs_error *err)
{
    return zs_schedule_build_eval(&list->schedule, r->arena, r->plan, n_samples, err) &&
           open_list(list, r, err);
}

static bool open_parts(zx_run *r, zs_error *err)
{
    const int rank = r->comm->rank;
    if (!zs_schedule_build(&r->training.schedule, r->arena, r->plan, r->model->tied, err) ||
        !open_list(&r->training, r, err) ||
        !open_eval_list(&r->eval_whole, r, (int)zx_run_global_batch(r->plan), err))
        return false;
    const int n = r->training.program->n_instructions;
    r->walk.requests = ZS_NEW(r->arena, zx_request *, n, err);
    r->walk.posted = ZS_NEW(r->arena, bool, n, err);
    return r->walk.requests && r->walk.posted &&
           zx_stage_open(&r->stage, r->arena, r->backend, r->plan, r->model, rank,
                         r->training.program->n_slots, r->options.seed, r->options.n_threads,
                         err) &&
           zx_zero_open(&r->zero, r->arena, r->comm, &r->stage, r->plan, rank, err) &&
           zx_optimizer_open(&r->optimizer, &r->zero, r->options.beta1, r->options.beta2,
                             r->options.eps, r->options.weight_decay, err);
}

bool zx_run_open(zx_run *out, zx_comm *comm, zx_backend *backend, const zs_plan *plan,
                 const zm_model *model, const zx_run_options *options, zs_error *err)
{
    *out = (zx_run){
        .comm = comm, .backend = backend, .plan = plan, .model = model, .options = *options};
    if (!zx_run_check(plan, model, err) || !zs_arena_open(&out->arena, err))
        return false;
    if (!open_parts(out, err)) {
        zx_run_close(out);
        return false;
    }
    return true;
}

void zx_run_close(zx_run *r)
{
    if (r->arena) {
        zx_zero_close(&r->zero);
        zs_arena_close(&r->arena);
    }
}

bool zx_run_step(zx_run *r, zx_step_result *result, const zx_data *data, zs_error *err)
{
    const int64_t n_samples = zx_run_global_batch(r->plan);
    r->result = (zx_step_result){.step = r->n_steps + 1,
                                 .lr = zx_lr_at(&r->options.lr, r->n_steps),
                                 .n_tokens = n_samples * r->plan->job.seq_len};
    if (!zx_zero_clear(&r->zero, err) ||
        !walk(r, &r->training, data, r->options.order, r->position, n_samples, err))
        return false;
    r->n_steps++;
    r->position += n_samples;
    *result = r->result;
    return true;
}

bool zx_run_agree_to_stop(zx_run *r, zs_error *err)
{
    double n_told = zx_stop_wanted();
    if (!r->comm->ops->all_reduce(r->comm, NULL, &n_told, 1, err))
        return false;
    r->stop = n_told > 0;
    return true;
}

bool zx_run_evaluate(zx_run *r, double *loss, const zx_data *data, zs_error *err)
{
    const int64_t batch = zx_run_global_batch(r->plan);
    const int n_last = (int)(data->n_sequences % batch);
    if (n_last > 0 && n_last != r->n_eval_last) {
        if (!open_eval_list(&r->eval_last, r, n_last, err))
            return false;
        r->n_eval_last = n_last;
    }
    double sum = 0;
    int64_t n_run = 0;
    for (int64_t first = 0; first < data->n_sequences; first += batch) {
        const int64_t n = data->n_sequences - first < batch ? n_last : batch;
        const zx_list *list = n == batch ? &r->eval_whole : &r->eval_last;
        if (!walk(r, list, data, ZX_DATA_SEQUENTIAL, first, n, err))
            return zs_error_prefix(err, "evaluation");
        sum += r->walk.loss_sum;
        if (++n_run % EVAL_BATCHES_PER_LOOK == 0 && !zx_run_agree_to_stop(r, err))
            return false;
        if (r->stop)
            return true;
    }
    double sums[2] = {sum, zx_stop_wanted()};
    if (!r->comm->ops->all_reduce(r->comm, NULL, sums, 2, err))
        return false;
    r->stop = sums[1] > 0;
    *loss = sums[0] / ((double)data->n_sequences * r->stage.seq_len);
    return true;
}

/* All-reduce adds doubles, so the sum modulo 2^64 travels as four exact parts of 16 bits. */
bool zx_run_digest(zx_run *r, uint64_t *digest, zs_error *err)
{
    uint64_t own = 0;
    if (!zx_zero_digest(&r->zero, r->arena, &own, err))
        return false;
    double parts[4];
    for (int i = 0; i < 4; i++)
        parts[i] = (double)(own >> (16 * i) & 0xffff);
    if (!r->comm->ops->all_reduce(r->comm, NULL, parts, 4, err))
        return false;
    uint64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (uint64_t)parts[i] << (16 * i);
    *digest = sum;
    return true;
}
