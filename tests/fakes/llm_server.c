/*
 * A server of a language model that computes nothing: each request says when each of its events is due, and each event
 * says when it was sent (CLOCK_MONOTONIC, ns): "t" right before send(2), and "p" right after that of the event before.
 * So what a client measures can be held against it.
 *
 *     llm_server [PORT [SLOTS]]     serves on the loopback until it is killed; its first line is the port
 *
 * With SLOTS so many requests are answered at once: the others wait for their turn, first come, first served. So it
 * answers SLOTS / (ttft + (chunks - 1) x period) requests a second at most.
 *
 * GET /metrics answers with vLLM's histograms of the requests that it has answered: the time in its queue, and prefill
 * and decode as they were planned. Any other GET is not found.
 *
 * The schedule is the string "ref" in a request's body, words of NAME=NUMBER, times in us:
 *   ttft      from the request to the first chunk              spread    added to it, in a thousandth part per request
 *   period    from chunk to chunk                              chunks    number of chunks with content
 *   tokens    tokens of each chunk                             burst     chunks that are sent together
 *   role      1: a chunk with the role alone comes at once     reasoning chunks of reasoning before the content
 *   stall_at  number of a chunk before which it pauses         stall     for this long
 *   usage     1: the tokens come at the end                    continuous 1: and with each chunk, as vLLM does
 *   timings   1: they come with each chunk as llama.cpp's      cached    tokens of the prompt that were cached
 *   reuse     tokens that each answer in the messages adds to the prompt, and to its cached part
 *   context   us that 1,000 words of the request, which are its tokens then, add to the period
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS = 8192, REQUEST = 1 << 16 };
enum { TTFT, SPREAD, PERIOD, CHUNKS, TOKENS, BURST, ROLE, REASONING, STALL_AT, STALL, USAGE, CONTINUOUS, TIMINGS,
       CACHED, REUSE, CONTEXT, WORDS };
static const char *const NAMES[WORDS] = {"ttft", "spread", "period", "chunks", "tokens", "burst", "role", "reasoning",
                                         "stall_at", "stall", "usage", "continuous", "timings", "cached",
                                         "reuse", "context"};
static const int64_t DEFAULTS[WORDS] = {1000, 0, 1000, 8, 1, 1, 1, 0, -1, 0, 1, 0, 0, 0, 0, 0};

typedef struct Stream {
    int fd, read, next, place, serves; /* bytes read; number of the next event; place in the heap, -1: not in it */
    int64_t came, start, due, after, prompt, plan[WORDS]; /* prompt: its tokens; after: the send of its last event */
    struct Stream *later; /* who waits for a turn behind it */
    char *request;
} Stream;

static Stream streams[STREAMS];
static Stream *heap[STREAMS];
static Stream *turns; /* those that wait for their turn, in order */
static int waiting, requests, slots, busy, ended;
static int64_t queued, prefilled, decoded; /* ns, of the requests that ended */

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void put(Stream *stream, int place) {
    heap[place] = stream;
    stream->place = place;
}

static void sift(int place) { /* the heap's order is broken at most here */
    Stream *stream = heap[place];
    for (int up; place && heap[up = (place - 1) / 2]->due > stream->due; place = up) put(heap[up], place);
    for (int down; (down = 2 * place + 1) < waiting; place = down) {
        if (down + 1 < waiting && heap[down + 1]->due < heap[down]->due) down++;
        if (heap[down]->due >= stream->due) break;
        put(heap[down], place);
    }
    put(stream, place);
}

static void leave(Stream *stream) {
    int place = stream->place;
    if (place < 0) return;
    stream->place = -1;
    if (place == --waiting) return;
    put(heap[waiting], place);
    sift(place);
}

static int64_t due(const Stream *stream, int event) {
    const int64_t *plan = stream->plan;
    if (plan[ROLE] && event-- == 0) return stream->start;
    int64_t us = plan[TTFT] + event / plan[BURST] * plan[BURST] * plan[PERIOD];
    if (plan[STALL_AT] >= 0 && event >= plan[STALL_AT]) us += plan[STALL];
    return stream->start + 1000 * us;
}

static void chunk(int fd, const char *text, int size) {
    char framed[2048];
    send(fd, framed, snprintf(framed, sizeof framed, "%x\r\n%.*s\r\n", size, size, text), MSG_NOSIGNAL);
}

static int numbers(char *to, size_t room, const Stream *stream, int64_t tokens, int last) {
    const int64_t *plan = stream->plan;
    int size = 0;
    if (last ? plan[USAGE] : plan[CONTINUOUS])
        size += snprintf(to + size, room - size, ",\"usage\":{\"prompt_tokens\":%ld,\"completion_tokens\":%ld,"
                         "\"prompt_tokens_details\":{\"cached_tokens\":%ld}}", (long)(stream->prompt + plan[REUSE]), (long)tokens,
                         (long)(plan[CACHED] + plan[REUSE]));
    if (plan[TIMINGS]) size += snprintf(to + size, room - size, ",\"timings\":{\"predicted_n\":%ld,\"prompt_ms\":%.3f,"
                                        "\"predicted_ms\":%.3f}", (long)tokens, plan[TTFT] / 1e3,
                                        tokens ? (tokens / plan[TOKENS] - 1) * plan[PERIOD] / 1e3 : 0.0);
    return size;
}

static void serve(Stream *stream) {
    busy++, stream->serves = 1;
    stream->start = now();
    stream->next = 0, stream->after = stream->start;
    stream->due = due(stream, 0);
    put(stream, waiting++);
    sift(stream->place);
}

static void yield(Stream *stream) { /* it is answered, or gone: whose turn is it? */
    for (Stream **at = &turns; *at; at = &(*at)->later)
        if (*at == stream) {
            *at = stream->later;
            break;
        }
    if (!stream->serves) return;
    busy--, stream->serves = 0;
    if (!turns || busy >= slots) return;
    Stream *next = turns;
    turns = next->later;
    serve(next);
}

static void event(Stream *stream) {
    const int64_t *plan = stream->plan;
    int number = stream->next - (plan[ROLE] != 0), total = plan[REASONING] + plan[CHUNKS];
    char delta[64] = "\"role\":\"assistant\",\"content\":\"\"", more[256] = "", text[1024];
    if (number >= 0) sprintf(delta, "\"%s\":\" word\"", number < plan[REASONING] ? "reasoning_content" : "content");
    numbers(more, sizeof more, stream, (number + 1) * plan[TOKENS], 0);
    int64_t sent = now();
    chunk(stream->fd, text, snprintf(text, sizeof text,
          "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"ref\",\"choices\":[{\"index\":0,"
          "\"delta\":{%s},\"finish_reason\":%s}],\"t\":%ld,\"p\":%ld%s}\n\n", delta,
          number + 1 == total ? "\"stop\"" : "null", (long)sent, (long)stream->after, more));
    stream->after = now();
    stream->next++;
    if (number + 1 < total) {
        stream->due = due(stream, stream->next);
        sift(stream->place);
        return;
    }
    if (numbers(more, sizeof more, stream, total * plan[TOKENS], 1))
        chunk(stream->fd, text, snprintf(text, sizeof text, "data: {\"id\":\"c\",\"model\":\"ref\",\"choices\":[]%s}\n\n",
                                         more));
    ended++;
    queued += stream->start - stream->came;
    prefilled += 1000 * plan[TTFT];
    decoded += due(stream, stream->next - 1) - due(stream, plan[ROLE] != 0);
    chunk(stream->fd, "data: [DONE]\n\n", 14);
    send(stream->fd, "0\r\n\r\n", 5, MSG_NOSIGNAL);
    leave(stream);
    yield(stream);
}

static void begin(Stream *stream, const char *body) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    const char *schedule = strstr(body, "\"ref\":");
    memcpy(stream->plan, DEFAULTS, sizeof DEFAULTS);
    for (int word = 0; word < WORDS && schedule; word++) {
        char name[32];
        sprintf(name, "%s=", NAMES[word]);
        for (const char *at = schedule; (at = strstr(at, name)); at++)
            if (at[-1] == ' ' || at[-1] == '"') stream->plan[word] = atoll(at + strlen(name));
    }
    stream->plan[TTFT] += stream->plan[SPREAD] * (requests++ * 617 % 1000) / 1000;
    int answers = 0;
    for (const char *at = body; (at = strstr(at, "\"assistant\"")); at++) answers++;
    stream->plan[REUSE] *= answers;
    stream->prompt = 16;
    if (stream->plan[CONTEXT]) {
        stream->prompt = 0;
        for (const char *at = body; (at = strchr(at, ' ')); at++) stream->prompt++;
        stream->plan[PERIOD] += stream->plan[CONTEXT] * stream->prompt / 1000;
    }
    send(stream->fd, head, sizeof head - 1, MSG_NOSIGNAL);
    if (!slots || busy < slots) {
        serve(stream);
        return;
    }
    Stream **last = &turns;
    while (*last) last = &(*last)->later;
    *last = stream, stream->later = NULL;
}

static void get(Stream *stream) {
    static const char *const phases[] = {"queue", "prefill", "decode"};
    const int64_t ns[] = {queued, prefilled, decoded};
    char text[2048] = "", answer[2304];
    int size = 0, found = !strncmp(stream->request, "GET /metrics ", 13);
    for (int phase = 0; found && phase < 3; phase++)
        size += sprintf(text + size, "# TYPE vllm:request_%s_time_seconds histogram\n"
                        "vllm:request_%s_time_seconds_bucket{engine=\"0\",le=\"+Inf\"} %d\n"
                        "vllm:request_%s_time_seconds_count{engine=\"0\"} %d\n"
                        "vllm:request_%s_time_seconds_sum{engine=\"0\"} %.9f\n", phases[phase], phases[phase], ended,
                        phases[phase], ended, phases[phase], ns[phase] / 1e9);
    send(stream->fd, answer, sprintf(answer, "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s",
                                     found ? "200 OK" : "404 Not Found", size, text), MSG_NOSIGNAL);
}

static void receive(Stream *stream) {
    ssize_t count = recv(stream->fd, stream->request + stream->read, REQUEST - 1 - stream->read, 0);
    if (count <= 0) {
        leave(stream);
        yield(stream);
        close(stream->fd);
        return;
    }
    stream->request[stream->read += count] = 0;
    char *body = strstr(stream->request, "\r\n\r\n"), *length = strcasestr(stream->request, "content-length:");
    if (!body || stream->read < body + 4 - stream->request + (length ? atoi(length + 15) : 0)) return;
    stream->read = 0;
    if (!strncmp(stream->request, "GET ", 4)) {
        get(stream);
        return;
    }
    stream->came = now();
    begin(stream, body + 4);
}

int main(int count, char **words) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poller = epoll_create1(0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(count > 1 ? atoi(words[1]) : 0),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct rlimit files;
    slots = count > 2 ? atoi(words[2]) : 0;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (void *)&address, size) || listen(listener, 4096)) return 1;
    getsockname(listener, (void *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event wanted = {.events = EPOLLIN, .data.fd = listener}, ready[256];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &wanted);
    for (;;) {
        int64_t left = waiting ? heap[0]->due - now() : 1000000000;
        struct timespec wait = {left > 0 ? left / 1000000000 : 0, left > 0 ? left % 1000000000 : 0};
        struct pollfd any = {poller, POLLIN, 0};
        ppoll(&any, 1, &wait, NULL);
        for (int index = 0, all = epoll_wait(poller, ready, 256, 0); index < all; index++) {
            int fd = ready[index].data.fd;
            if (fd != listener) {
                receive(&streams[fd]);
                continue;
            }
            while ((fd = accept4(listener, NULL, NULL, 0)) >= 0 && fd < STREAMS) {
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                if (!streams[fd].request) streams[fd].request = malloc(REQUEST);
                streams[fd].fd = fd, streams[fd].read = 0, streams[fd].place = -1;
                wanted.data.fd = fd;
                epoll_ctl(poller, EPOLL_CTL_ADD, fd, &wanted);
            }
        }
        for (int64_t until = now(); waiting && heap[0]->due <= until;) event(heap[0]);
    }
}
