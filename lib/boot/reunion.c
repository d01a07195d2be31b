/* SPDX-License-Identifier: Apache-2.0 */
/* The reunion: how the ranks that are left of a communicator find each other again, and agree who they are.
 *
 * Every rank keeps the listeners that its peers dialled, for as long as it has a communicator that came from there; so
 * a connection that is refused there tells that the process is gone, and one that is not answered that it is busy.
 * In a reunion each rank dials all others, says what it knows of everybody (its view) on the connections that it
 * dialled, and reads what they say on those that it accepted. The lowest that is there decides, once everybody is
 * there or known not to come: it opens a rendezvous and names its members (go). They make a communicator of it; if one
 * of them is lost meanwhile, the rest come back here for another round.
 *
 * The last step of a rendezvous may reach some and not others. Therefore whoever has succeeded says so here before it
 * goes (left), and whoever has come so far that others may have succeeded asks here before it gives up: if one of them
 * has, it has, too. */
#include "boot/inside.h"
#include "boot/keep.h"
#include "boot/launch.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_NS ((int64_t)50000000)      /* between two looks at what the kernel says of the others */
#define PART_NS ((int64_t)1000000000)    /* most that saying goodbye may take */
#define GRACE_NS ((int64_t)2000000000)   /* for the word of whoever decides, after the time is over */

/* One of the others, in a meeting. */
struct mate {
    struct rr_dial dial;
    struct rr_line out, in;     /* what I dialled, and say things on; what I accepted, and hear things on */
    uint8_t fate;               /* RR_FATE_, from whoever knows */
    int64_t since_ns;           /* when I began to dial it */
    bool quit, left;            /* it has said so */
    bool lost;                  /* it has hung up without a word */
    uint32_t back;              /* the latest round that came to nothing for it */
    bool met;                   /* I have reached it once */
    bool view;                  /* it is to be told what I know, before anything else */
    enum rr_note_kind due;      /* what else is to be said to it. 0: nothing */
    enum rr_note_kind repeat;   /* the last of these. 0: none yet */
    unsigned char *said, *heard; /* [GO_BYTES] */
};

struct rr_meeting {
    struct rr_reunion *u;
    const struct rr_reunion_call *call;
    struct rr_net net;
    struct rr_gate gate;
    struct rr_polls polls;
    struct mate *mate;          /* [size] */
    unsigned char *room;        /* what is said to them, and heard */
    uint8_t *fate;              /* [size] what this machine's kernel says */
    int extra;
    int64_t started_ns, looked_ns, asked_ns;
    uint32_t round, mine, joined; /* the latest that anybody has spoken of, that named me, and that I went to, */
    uint32_t failed;            /* and that came to nothing for me */
    uint8_t *go;                /* what was named in the latest round that I am in: [size] who, then the id */
    bool named;                 /* it has been, and nothing has been made of it yet */
    unsigned char job[RR_JOB_BYTES]; /* of its rendezvous */
    bool was_left;              /* others have succeeded in that */
    ringred_error failure;      /* code 0: none */
};

/* ---- who is there ---- */

static size_t go_bytes(const struct rr_reunion *u)
{
    return (size_t)u->size + sizeof(ringred_unique_id);
}

static bool is_here(const struct rr_meeting *m, int r)
{
    const struct mate *p = &m->mate[r];

    return r == m->u->rank || (p->in.fd >= 0 && p->out.fd >= 0 && !p->quit && !p->left && !p->fate);
}

static int lowest_here(const struct rr_meeting *m)
{
    int r = 0;

    while (!is_here(m, r))
        r++;
    return r;
}

/* Is there nobody left to wait for? */
static bool is_complete(const struct rr_meeting *m)
{
    for (int r = 0; r < m->u->size; r++)
        if (!is_here(m, r) && !m->mate[r].fate && !m->mate[r].quit)
            return false;
    return true;
}

static void say_to_all(struct rr_meeting *m, enum rr_note_kind kind)
{
    for (int r = 0; r < m->u->size; r++) {
        m->mate[r].view = m->mate[r].view || kind == RR_NOTE_VIEW;
        m->mate[r].due = kind == RR_NOTE_VIEW ? m->mate[r].due : kind;
    }
}

static void learn(struct rr_meeting *m, int r, uint8_t fate)
{
    struct mate *p = &m->mate[r];

    if (r == m->u->rank || (p->fate | fate) == p->fate)
        return;
    p->fate |= fate;
    say_to_all(m, RR_NOTE_VIEW);
    rr_log(m->call->log, RINGRED_LOG_INFO, "reunion: rank %d is %s", r,
           fate & RR_FATE_DEAD ? "dead" : "silent");
}

/* Nobody listens at any of its addresses any more. */
static bool is_refused(const struct rr_dial *d)
{
    for (int i = 0; i < d->count; i++)
        if (d->at[i].verdict != RR_VERDICT_LOST || d->at[i].system != ECONNREFUSED)
            return false;
    return d->count > 0;
}

/* Its machine has not answered a single packet of my dials. */
static bool is_silent(const struct rr_meeting *m, const struct mate *p)
{
    int64_t most = rr_setting(m->call->settings, RR_SET_PEER_TIMEOUT);

    return p->dial.count > 0 && !p->dial.answered && most >= 0 && rr_now_ns() - p->since_ns > most;
}

/* ---- connections ---- */

static void redial(struct rr_meeting *m, int r)
{
    struct mate *p = &m->mate[r];

    rr_line_close(&p->out);
    if (p->dial.state == RR_DIAL_TRYING)
        return;
    for (int i = 0; i < p->dial.count; i++)
        p->dial.at[i].verdict = RR_VERDICT_NONE;
    p->dial.answered = false;
    p->since_ns = rr_now_ns();
    rr_dial_again(&p->dial);
}

/* What I dialled is broken. If its machine has acknowledged nothing for peer_timeout, that says enough. */
static void break_line(struct rr_meeting *m, int r, int system)
{
    if (system == ETIMEDOUT)
        learn(m, r, RR_FATE_SILENT);
    redial(m, r);
}

/* Nothing is ever said to me on what I dialled: something to read there is its end. */
static void look_for_end(struct rr_meeting *m, int r)
{
    int fd = m->mate[r].out.fd, system = 0;
    socklen_t n = sizeof system;

    if (fd < 0)
        return;
    (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &system, &n);
    if (system || rr_fd_has_ended(fd))
        break_line(m, r, system);
}

/* What I hear from it has come to an end: if it has not said goodbye, it may be dead, or dial again. Each end looks
 * after what it has dialled itself: if a loss here ended the other direction, too, the two could do so for ever. */
static void lose(struct mate *p)
{
    rr_line_close(&p->in);
    p->lost = !p->quit && !p->left;
}

static void admit(void *meeting, int fd, int rank, int stream, const struct rr_seal *seal)
{
    struct rr_meeting *m = meeting;

    (void)stream; /* there is one */
    if (rank < 0 || rank >= m->u->size || rank == m->u->rank) {
        rr_fd_close(fd);
        return;
    }
    struct mate *p = &m->mate[rank];
    rr_net_keep(&m->net, fd);
    rr_line_close(&p->in);
    (void)rr_line_open(&p->in, fd, rank, seal); /* without memory it comes again */
    p->quit = p->lost = false; /* it is back, for another try */
}

/* On a new line: what was said last on the one before may not have arrived. */
static void begin_to_speak(struct mate *p)
{
    p->met = p->view = true;
    p->due = p->due ? p->due : p->repeat;
}

static void dialled(struct rr_meeting *m, int r)
{
    struct mate *p = &m->mate[r];

    if (p->dial.state == RR_DIAL_FATAL) { /* no descriptor; somebody may give one back */
        rr_dial_again(&p->dial);
        return;
    }
    struct rr_seal seal;
    int fd = rr_dial_take(&p->dial, &seal);
    rr_net_keep(&m->net, fd);
    int rc = rr_line_open(&p->out, fd, r, &seal);
    sodium_memzero(&seal, sizeof seal);
    if (rc < 0) {
        redial(m, r);
        return;
    }
    begin_to_speak(p);
}

static void aim(struct rr_meeting *m, int r)
{
    const struct rr_reunion *u = m->u;
    const struct rr_badge badge = { u->key, u->job, u->rank, RR_PURPOSE_REUNION, 0, rr_hand_offers(m->call->settings) };
    struct rr_address to[RR_ADDRESSES];
    int n = rr_entry_ways(&u->entry[r], u->entry[u->rank].net, to);

    m->mate[r].since_ns = m->started_ns;
    rr_dial_init(&m->mate[r].dial, &badge, r);
    m->mate[r].dial.net = &m->net;
    m->mate[r].dial.extra = &m->extra;
    rr_dial_aim(&m->mate[r].dial, to, n);
}

/* ---- what is said ---- */

static void write_view(const struct rr_meeting *m, unsigned char *to)
{
    for (int r = 0; r < m->u->size; r++)
        to[r] = m->mate[r].fate;
}

static void say(struct rr_meeting *m, struct mate *p)
{
    enum rr_note_kind kind = p->view ? RR_NOTE_VIEW : p->due;
    size_t bytes = (size_t)m->u->size;
    uint32_t round = kind == RR_NOTE_BACK ? m->failed : kind == RR_NOTE_GO ? m->mine : m->round;

    if (kind == RR_NOTE_VIEW || kind == RR_NOTE_BACK) {
        write_view(m, p->said);
    } else if (kind == RR_NOTE_GO) {
        bytes = go_bytes(m->u);
        memcpy(p->said, m->go, bytes);
    } else if (kind == RR_NOTE_LEFT) {
        bytes = RR_JOB_BYTES;
        memcpy(p->said, m->job, bytes);
    } else if (kind == RR_NOTE_FAIL) {
        bytes = RR_FAIL_BYTES;
        rr_fail_write(&m->failure, p->said);
    } else {
        bytes = 0;
    }
    rr_line_send(&p->out, kind, round, p->said, bytes);
    if (p->view) {
        p->view = false;
    } else {
        p->repeat = kind;
        p->due = 0;
    }
}

static void speak(struct rr_meeting *m, int r)
{
    struct mate *p = &m->mate[r];

    while (p->out.fd >= 0 && (p->out.sending || p->view || p->due)) {
        if (!p->out.sending)
            say(m, p);
        errno = 0;
        int rc = rr_line_write(&p->out);
        if (rc < 0)
            break_line(m, r, errno);
        if (rc)
            return;
    }
}

/* ---- what is heard ---- */

static bool is_sound(const struct rr_meeting *m, const struct rr_note *note)
{
    switch (note->kind) {
    case RR_NOTE_VIEW:
    case RR_NOTE_BACK:
        return note->bytes == (uint64_t)m->u->size;
    case RR_NOTE_GO:
        return note->bytes == go_bytes(m->u);
    case RR_NOTE_LEFT:
        return note->bytes == RR_JOB_BYTES;
    case RR_NOTE_FAIL:
        return note->bytes == RR_FAIL_BYTES;
    default:
        return note->kind == RR_NOTE_QUIT && note->bytes == 0;
    }
}

/* The rendezvous that was named is not to be used. */
static void drop_named(struct rr_meeting *m)
{
    ringred_unique_id id;

    memcpy(&id, m->go + m->u->size, sizeof id);
    rr_unique_id_drop(&id);
    sodium_memzero(&id, sizeof id);
    m->named = false;
}

static void hear_go(struct rr_meeting *m, struct mate *p)
{
    if (p->in.in.step <= m->mine || !p->heard[m->u->rank])
        return; /* an earlier one, or not for me */
    if (m->named)
        drop_named(m); /* by me, before I heard of this one */
    m->mine = p->in.in.step;
    memcpy(m->go, p->heard, go_bytes(m->u));
    m->named = true;
}

/* Somebody has a new communicator: the one that I came for, too, or one without me. */
static void hear_left(struct rr_meeting *m, int r)
{
    struct mate *p = &m->mate[r];

    p->left = true;
    if (memcmp(p->heard, m->job, RR_JOB_BYTES) == 0)
        m->was_left = true;
    else
        rr_fail(&m->failure, RINGRED_EPARTITION, r, 0,
                "rank %d came too late, or could not be reached: rank %d went on without it", m->u->rank, r);
}

static void hear(struct rr_meeting *m, int r)
{
    struct mate *p = &m->mate[r];

    if (p->in.in.kind == RR_NOTE_BACK)
        p->back = p->in.in.step;
    switch (p->in.in.kind) {
    case RR_NOTE_BACK:
    case RR_NOTE_VIEW:
        for (int k = 0; k < m->u->size; k++)
            learn(m, k, p->heard[k] & (RR_FATE_DEAD | RR_FATE_SILENT));
        break;
    case RR_NOTE_GO:
        hear_go(m, p);
        break;
    case RR_NOTE_LEFT:
        hear_left(m, r);
        break;
    case RR_NOTE_FAIL:
        if (r == lowest_here(m))
            (void)rr_fail_read(p->in.fail, RR_FAIL_BYTES, &m->failure); /* the code is in it */
        else
            p->quit = true; /* it knew less than I do: it goes, and the rest may go on */
        break;
    default:
        p->quit = true;
    }
    if (p->in.in.step > m->round)
        m->round = p->in.in.step;
}

static void listen_to(struct rr_meeting *m, int r)
{
    struct mate *p = &m->mate[r];

    while (p->in.fd >= 0) {
        enum rr_line_news news = rr_line_read(&p->in);
        if (news == RR_LINE_QUIET)
            return;
        if (news == RR_LINE_ENDED || !is_sound(m, &p->in.in)) {
            lose(p);
            return;
        }
        if (news == RR_LINE_HEADED) {
            p->in.body = p->heard;
            continue;
        }
        hear(m, r);
        rr_line_next(&p->in);
    }
}

/* ---- a turn ---- */

/* What this rank knows of the others without asking them. */
static void look(struct rr_meeting *m)
{
    int64_t now = rr_now_ns();

    if (now < m->looked_ns + LOOK_NS)
        return;
    m->looked_ns = now;
    m->call->look(m->call->context, m->fate);
    for (int r = 0; r < m->u->size; r++)
        learn(m, r, m->fate[r]);
}

static void collect(struct rr_meeting *m)
{
    m->polls.used = 0;
    rr_gate_polls(&m->gate, &m->polls);
    for (int r = 0; r < m->u->size; r++) {
        struct mate *p = &m->mate[r];
        if (r == m->u->rank)
            continue;
        p->in.at = p->in.fd >= 0 ? rr_polls_add(&m->polls, p->in.fd, POLLIN) : -1;
        short events = (short)(POLLIN | (p->out.sending ? POLLOUT : 0));
        p->out.at = p->out.fd >= 0 ? rr_polls_add(&m->polls, p->out.fd, events) : -1;
        if (p->out.fd < 0 && !(p->fate & RR_FATE_DEAD))
            rr_dial_polls(&p->dial, &m->polls);
    }
}

static void turn(struct rr_meeting *m, int64_t until)
{
    look(m);
    m->polls.wake_ns = until < m->looked_ns + LOOK_NS ? until : m->looked_ns + LOOK_NS;
    collect(m);
    (void)poll(m->polls.at, (nfds_t)m->polls.used, rr_deadline_ms(m->polls.wake_ns, 1000)); /* else we look again */
    rr_gate_turn(&m->gate, &m->polls, m->call->log, admit, m);
    for (int r = 0; r < m->u->size; r++) {
        struct mate *p = &m->mate[r];
        if (r == m->u->rank)
            continue;
        if (p->out.fd < 0 && p->dial.state == RR_DIAL_TRYING && !(p->fate & RR_FATE_DEAD)) {
            rr_dial_turn(&p->dial, &m->polls);
            if (p->dial.state != RR_DIAL_TRYING)
                dialled(m, r);
            else if (is_refused(&p->dial))
                learn(m, r, RR_FATE_DEAD);
            else if (is_silent(m, p))
                learn(m, r, RR_FATE_SILENT);
        }
        listen_to(m, r);
        if (rr_polls_ready(&m->polls, p->out.at))
            look_for_end(m, r);
        speak(m, r);
    }
}

/* ---- deciding ---- */

/* "1, 3-5": those that are (not) in the round. */
static void list(const struct rr_meeting *m, bool in, struct rr_text *t)
{
    for (int r = 0; r < m->u->size; r++) {
        int first = r;
        while (r < m->u->size && (m->go[r] != 0) == in)
            r++;
        if (r > first)
            rr_text_add(t, r - first == 1 ? "%s%d" : "%s%d-%d", t->used ? ", " : "", first, r - 1);
    }
}

/* May those that are here go on? The majority may; half of them with the lowest rank; fewer only if all others are
 * proved dead, since those may be the majority somewhere else. */
static int check_majority(struct rr_meeting *m)
{
    char here[100] = "", missing[100] = "";
    struct rr_text h = { here, sizeof here, 0 }, x = { missing, sizeof missing, 0 };
    int n = 0, lost = -1;

    for (int r = 0; r < m->u->size; r++) {
        n += m->go[r];
        if (!m->go[r] && !(m->mate[r].fate & RR_FATE_DEAD) && lost < 0)
            lost = r;
    }
    if (lost < 0 || 2 * n > m->u->size || (2 * n == m->u->size && m->go[0]))
        return 0;
    list(m, true, &h);
    list(m, false, &x);
    return rr_fail(&m->failure, RINGRED_EPARTITION, lost, 0,
                   "ranks %s are no majority of %d, and of the others (%s) rank %d is not known to be dead: it may go "
                   "on somewhere else", here, m->u->size, missing, lost);
}

/* Those that may have gone on in a communicator that I am not sure of may be its majority: then I must not go on with
 * others. */
static int check_doubts(struct rr_meeting *m)
{
    const struct rr_reunion *u = m->u;

    if (u->forgot)
        return rr_fail(&m->failure, RINGRED_EPARTITION, -1, 0,
                       "rank %d cannot know in which communicators the others may have gone on", u->rank);
    for (int k = 0; k < u->doubts; k++) {
        const struct rr_doubt *d = &u->doubt[k];
        int here = 0, known = 0, lowest = -1;
        for (int r = 0; r < u->size; r++) {
            if (!d->in[r])
                continue;
            lowest = lowest < 0 ? r : lowest;
            here += m->go[r];
            known += m->go[r] || (m->mate[r].fate & RR_FATE_DEAD);
        }
        if (known < d->size && 2 * here <= d->size && (2 * here < d->size || !m->go[lowest]))
            return rr_fail(&m->failure, RINGRED_EPARTITION, -1, 0,
                           "rank %d cannot know whether a communicator of %d ranks was made, of which %d are here: the "
                           "others may have gone on in it", u->rank, d->size, here);
    }
    return 0;
}

static int decide(struct rr_meeting *m)
{
    for (int r = 0; r < m->u->size; r++)
        m->go[r] = is_here(m, r);
    if (check_majority(m) == 0)
        (void)rr_unique_id_open(m->call->settings, (ringred_unique_id *)(void *)(m->go + m->u->size), &m->failure);
    if (m->failure.code) {
        say_to_all(m, RR_NOTE_FAIL);
        return m->failure.code;
    }
    m->mine = ++m->round;
    m->named = true;
    for (int r = 0; r < m->u->size; r++)
        if (m->go[r])
            m->mate[r].due = RR_NOTE_GO;
    return 0;
}

static int late(struct rr_meeting *m)
{
    int r = lowest_here(m);

    return rr_fail(&m->failure, RINGRED_ETIMEOUT, r, 0,
                   "rank %d gathers those that are left, and did not go on within %.3g s", r,
                   (double)(rr_now_ns() - m->started_ns) / 1e9);
}

int rr_launch_by_id(const ringred_unique_id *id, int rank, int size, struct rr_launch *launch, ringred_error *why)
{
    *launch = (struct rr_launch){ .rank = rank, .size = size, .local_rank = -1, .local_size = -1, .listener = -1 };
    snprintf(launch->source, sizeof launch->source, "unique id");
    return rr_take_id(id, launch, why);
}

/* They keep their key. */
static int write_launch(struct rr_meeting *m, struct rr_agreed *a, ringred_error *why)
{
    struct rr_launch *l = &a->launch;
    ringred_unique_id id;
    int rank = 0, n = 0;

    for (int r = 0; r < m->u->size; r++) {
        if (!m->go[r])
            continue;
        if (r == m->u->rank)
            rank = n;
        a->member[n++] = r;
    }
    memcpy(&id, m->go + m->u->size, sizeof id);
    RR_TRY(rr_launch_by_id(&id, rank, n, l, why));
    memcpy(m->job, l->job, RR_JOB_BYTES);
    m->joined = m->mine;
    m->named = m->was_left = false;
    memcpy(l->key, m->u->key, RR_KEY_BYTES);
    l->has_key = m->u->has_key;
    return 0;
}

/* Does a mate wait for what it has not heard, since it has to be dialled again? Others ask again, or do without. */
static bool is_awaited(const struct mate *p)
{
    enum rr_note_kind kind = p->due ? p->due : p->repeat;

    return p->out.fd < 0 && p->met && !p->fate && !p->quit && !p->left &&
           (kind == RR_NOTE_GO || kind == RR_NOTE_LEFT || kind == RR_NOTE_FAIL);
}

/* What was due is said first: peers may wait for it. */
static void say_all(struct rr_meeting *m, int64_t until)
{
    for (bool due = true; due && rr_now_ns() < until;) {
        due = false;
        for (int r = 0; r < m->u->size; r++) {
            const struct mate *p = &m->mate[r];
            speak(m, r);
            due = due || is_awaited(p) || (p->out.fd >= 0 && (p->out.sending || p->view || p->due));
        }
        if (due)
            turn(m, until);
    }
}

/* Has everybody who was in the round that came to nothing for me said what it came to for him? */
static bool is_clear(const struct rr_meeting *m)
{
    for (int r = 0; r < m->u->size; r++) {
        const struct mate *p = &m->mate[r];
        if (m->go[r] && r != m->u->rank && p->back < m->failed && !p->quit && !p->left && !p->fate)
            return false;
    }
    return true;
}

int rr_reunion_agree(struct rr_meeting *m, bool doubt, struct rr_agreed *a, ringred_error *why)
{
    const struct rr_reunion_call *call = m->call;
    int64_t with_grace = call->deadline_ns < INT64_MAX - GRACE_NS ? call->deadline_ns + GRACE_NS : INT64_MAX;

    m->failed = m->joined;
    say_to_all(m, m->failed ? RR_NOTE_BACK : RR_NOTE_VIEW); /* who still waits for me in that round need not */
    while (!m->named && !m->failure.code && !(m->was_left && doubt)) {
        int64_t now = rr_now_ns();
        bool mine = lowest_here(m) == m->u->rank;
        if (mine && ((is_complete(m) && (!doubt || is_clear(m))) || now >= call->patience_ns))
            (void)decide(m); /* what it came to is in m */
        else if (now >= with_grace)
            (void)late(m);
        else
            turn(m, mine ? call->patience_ns : with_grace);
        if (call->interrupt && now >= m->asked_ns + RR_INTERRUPT_NS / 2) {
            m->asked_ns = now;
            if (rr_is_interrupted(call->interrupt))
                rr_fail(&m->failure, RINGRED_EINTERRUPTED, m->u->rank, 0, "the caller interrupted rank %d while it "
                        "looked for those that are left", m->u->rank);
        }
    }
    say_all(m, rr_now_ns() + PART_NS);
    bool before = m->was_left && doubt;
    if (!before && !m->failure.code)
        (void)check_doubts(m); /* what it came to is in m */
    if ((before || m->failure.code) && m->named)
        drop_named(m);
    if (before)
        return RR_AGREED_BEFORE;
    if (m->failure.code) {
        *why = m->failure;
        return why->code;
    }
    return write_launch(m, a, why);
}

bool rr_reunion_lost(struct rr_meeting *m)
{
    bool lost = m->failure.code != 0;

    turn(m, 0);
    for (int r = 0; r < m->u->size; r++) {
        if (r == m->u->rank || !m->go[r])
            continue;
        const struct mate *p = &m->mate[r]; /* its word that it has left may be behind the end of what I dialled */
        lost = lost || (!p->left && (p->lost || p->quit || p->fate || p->back == m->joined));
    }
    return lost || m->named; /* then whoever decides has begun another round */
}

/* ---- beginning and ending ---- */

static void free_meeting(struct rr_meeting *m)
{
    for (int r = 0; m->mate && r < m->u->size; r++) {
        rr_dial_drop(&m->mate[r].dial);
        rr_line_close(&m->mate[r].out);
        rr_line_close(&m->mate[r].in);
    }
    rr_gate_shut(&m->gate);
    rr_net_close(&m->net);
    rr_free(m->polls.at);
    rr_free(m->mate);
    rr_free(m->room);
    rr_free(m->fate);
    rr_free(m);
}

int rr_reunion_begin(struct rr_reunion *u, const struct rr_reunion_call *call, struct rr_meeting **meeting,
                     ringred_error *why)
{
    struct rr_meeting *m = rr_alloc(1, sizeof *m);
    size_t n = (size_t)u->size, each = go_bytes(u) > RR_FAIL_BYTES ? go_bytes(u) : RR_FAIL_BYTES;

    if (!m)
        return rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to look for %d ranks", u->size);
    m->u = u;
    m->call = call;
    m->started_ns = rr_now_ns();
    m->polls.room = (int)(n * (RR_DIAL_RACE + 2)) + RR_BOOT_STRANGERS + RR_ADDRESSES;
    m->polls.at = rr_alloc((size_t)m->polls.room, sizeof *m->polls.at);
    m->mate = rr_alloc(n, sizeof *m->mate);
    m->room = rr_alloc(2 * n + 1, each);
    m->fate = rr_alloc(n, 1);
    int rc = m->polls.at && m->mate && m->room && m->fate
                 ? rr_net_open(call->settings, &m->net, why)
                 : rr_fail(why, RINGRED_ENOMEM, -1, 0, "no memory to look for %d ranks", u->size);
    for (int r = 0; r < u->size && m->mate; r++) {
        rr_line_init(&m->mate[r].out, -1, r);
        rr_line_init(&m->mate[r].in, -1, r);
    }
    if (rc < 0) {
        free_meeting(m);
        return rc;
    }
    m->go = m->room + 2 * n * each;
    for (int r = 0; r < u->size; r++) {
        m->mate[r].said = m->room + (size_t)r * each;
        m->mate[r].heard = m->room + (n + (size_t)r) * each;
        if (r != u->rank)
            aim(m, r);
    }
    m->gate.badge = (struct rr_badge){ u->key, u->job, u->rank, RR_PURPOSE_REUNION, 0, rr_hand_offers(call->settings) };
    m->gate.borrowed = true;
    m->gate.listeners = u->listeners;
    memcpy(m->gate.listener, u->listener, sizeof u->listener);
    *meeting = m;
    return 0;
}

void rr_reunion_end(struct rr_meeting *m, bool done)
{
    if (!m)
        return;
    say_to_all(m, done ? RR_NOTE_LEFT : RR_NOTE_QUIT);
    say_all(m, rr_now_ns() + PART_NS);
    free_meeting(m);
}
