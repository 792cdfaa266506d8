"""What a client saw of an endpoint of a language model."""

from aaco.core.tables.spec import FLAG, INT, NAME, TEXT, TableSpec

REQUESTS = TableSpec(
    "requests", "metrics/requests.parquet",
    "One row per request to an endpoint of a language model (`aaco llm`, or what another tool recorded). Times of the "
    "answer are those at which the kernel received it if it gave a stamp; of another tool those of its reads.", {
        "request_id": (INT, "row key in the order of dispatch"),
        "conversation": (INT, "number of the conversation that it is a turn of; null outside of conversations"),
        "turn": (INT, "how many answers of its conversation come before it"),
        "after_request": (INT, "request whose answer it follows; null of a first turn"),
        "t_intended_ns": (INT, "when it was due by the load's plan; without one, when its turn came; null where "
                               "another tool does not say"),
        "t_send_ns": (INT, "when the client began on it: opened a connection, if it needed one, and sent; null where "
                           "only the server's times are there"),
        "from_send": (FLAG, "its times count from its own dispatch, which is 0: when that was is not known"),
        "cpu_wait_ns": (INT, "of the time between those two, how long at most the client's thread waited for a CPU; "
                             "null where the plan has no times, or the kernel keeps no account"),
        "t_sent_ns": (INT, "when the last byte of it was handed to the kernel"),
        "t_first_byte_ns": (INT, "first byte of the answer's header"),
        "t_first_ns": (INT, "first event with content: the first token"),
        "t_first_earliest_ns": (INT, "the earliest that it may have come; null where t_first_ns is exact"),
        "t_last_ns": (INT, "last event with content"),
        "t_last_earliest_ns": (INT, "the earliest that it may have come; null where t_last_ns is exact"),
        "t_end_ns": (INT, "end of the answer, or when the request failed"),
        "prompt_tokens": (INT, "tokens of the prompt, as the server counts them"),
        "cached_tokens": (INT, "of them those that it had computed before; null where it does not say"),
        "output_tokens": (INT, "tokens of the content, as the server counts them; null where it does not say"),
        "tokens_source": (NAME, "where output_tokens comes from: continuous_usage, timings or usage; counted: in the "
                                "process that made them; tool: the one that measured, which may have counted the text; "
                                "server: its spans"),
        "reasoning_tokens": (INT, "tokens of reasoning, which are not among output_tokens; null where it does not say"),
        "accepted_draft_tokens": (INT, "tokens of a draft model that were accepted; null where it does not say"),
        "chunks": (INT, "events with content"),
        "server_start_ns": (INT, "when the server took it, by the server's clock"),
        "server_queue_ns": (INT, "in the server's queue, as it says"),
        "server_prefill_ns": (INT, "computing its prompt, as the server says"),
        "server_decode_ns": (INT, "computing its output after that, as the server says"),
        "server_ttft_ns": (INT, "from when the server took it to its first token, as it says"),
        "server_latency_ns": (INT, "from when the server took it to its end, as it says"),
        "status": (NAME, "ok, or the class of the failure"),
        "http_status": (INT, "status of the answer"),
        "detail": (TEXT, "what the server or the connection says of the failure"),
        "model": (NAME, "the model that the answer names"),
        "sent_again": (INT, "how often it was sent on a new connection because an idle one had died"),
    }, never_null=("request_id", "status"))
LLM_EVENTS = TableSpec(
    "llm_events", "metrics/llm_events.parquet",
    "One row per event of the answers, in the order in which the client read them. Only events with content carry "
    "tokens.", {
        "request_id": (INT, "row of requests"),
        "index": (INT, "number of the event in its answer, 0-based"),
        "t_ns": (INT, "when the kernel received its last byte; without a stamp, when the client read it"),
        "earliest_ns": (INT, "the earliest that it may have come, as several reads' worth have one stamp, or there is "
                             "none; null where t_ns is exact"),
        "delay_ns": (INT, "from the kernel's receipt to the client's read; null without a stamp"),
        "kind": (NAME, "content (after the first also a token without text, if the server counts it), reasoning, empty "
                       "(no text, such as the role), usage, error or done"),
        "tokens": (INT, "tokens in it as the server says with it; null where it does not"),
    }, never_null=("request_id", "index", "t_ns", "kind"))
ENGINE_STEPS = TableSpec(
    "engine_steps", "metrics/engine_steps.parquet",
    "One row per step of the engine during the load, on the clock of the requests: of a server from the trace that it "
    "wrote (`aaco llm --server-traces`), which is a session of its own; of a decoder in a process of its own from its "
    "record, without a part on the device.", {
        "step": (INT, "row of serving_steps in that session; of a decoder its number"),
        "phase": (NAME, "prefill, decode or mixed; null where the engine does not say"),
        "context_requests": (INT, "requests whose prompt is computed"),
        "generation_requests": (INT, "requests that get a token"),
        "t_start_ns": (INT, "start of the step on the host"),
        "t_end_ns": (INT, "its end there"),
        "device_start_ns": (INT, "start of the first kernel that it launched"),
        "device_end_ns": (INT, "end of the last kernel"),
        "busy_ns": (INT, "time in which at least one of its kernels, copies and fills ran"),
        "kernels": (INT, "kernels that it launched"),
    }, never_null=("step", "t_start_ns", "t_end_ns"))
