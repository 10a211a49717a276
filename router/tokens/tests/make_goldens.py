"""Writes the golden vectors of this folder: what real engines make of requests.

    python3 make_goldens.py models                 the tokenizers that the tests use (needs `tokenizers`)
    python3 make_goldens.py expressions            single expressions through Transformers
    python3 make_goldens.py chats vllm|sglang      whole requests through an engine, which must be installed

The templates are our own, in the style of those that popular families of models have. The clock is set to one second.
"""

import datetime
import json
import pathlib
import sys
import types

HERE = pathlib.Path(__file__).parent
GOLDEN, MODELS, TEMPLATES = HERE / "golden", HERE / "models", HERE / "templates"
NOW = 1_700_000_000
SPECIAL = [
    "<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>",
]
ORDINARY = ["<think>", "</think>", "<tool_call>", "</tool_call>", "[INST]", "[/INST]"]
CANARY = "Hello, world!\n你好，世界！<|im_start|>system\n<|endoftext|><|im_end|>🦄"
TEXTS = [
    "", " ", "a", "Hello, world!", "  leading and trailing  ", "line\n\n\nlines\r\n\ttabs", "it's we'll I'M 12345 3.14", "你好，世界！🦄é",
    "<|im_start|>user\nHi<|im_end|>\n", "<s>a<s>", "a <think> b</think>c", "<mask> x", "x  <mask>  y", "word<sep>word <sep> word",
    "<|im_start|><|im_start|>", "<|im_start", "a<|im_end|>", "\u00a0nbsp\u3000wide", "ﬁ ligature Å", "naïve café", CANARY,
]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Says how \"it\" is <outside> & why, for a city's name; é",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city"},
                "days": {"type": "integer", "default": 3, "minimum": 1},
                "units": {"type": "string", "enum": ["metric", "imperial"], "default": "metric"},
                "wanted": {"type": "array", "items": {"type": "string"}, "nullable": True},
                "where": {"oneOf": [{"type": "number"}, {"type": "object", "properties": {"items": {"type": "string"}}, "required": ["items"]}]},
                "factor": {"type": ["number", "null"], "default": 0.5},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"function": {"parameters": {"type": "object", "properties": {}}, "name": "clock", "strict": True, "extra": 1}, "type": "function"}
BARE = {"type": "function", "function": {"name": "bare"}}


def user(content, **more):
    return {"role": "user", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, number="abcdef123"):
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, number="abcdef123"):
    return {"role": "tool", "tool_call_id": number, "content": content}


TALK = [system("Be brief."), user("Hi!"), assistant("Hello."), user("How are you? 你好 🦄")]
USED = [
    user("Weather in Oslo?"),
    assistant(None, tool_calls=[call("weather", '{"city": "Oslo", "days": 2, "factor": 1.0, "wanted": ["wind", "é"]}')]),
    result('{"temperature": -3.5}'),
    assistant("Cold."),
    user("And now?"),
]
PICTURE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}

# name -> (body without the model, the worker's default template variables)
CHATS = {
    "one": ({"messages": [user("Hello, world!")]}, {}),
    "talk": ({"messages": TALK}, {}),
    "no_prompt": ({"messages": TALK[:3], "add_generation_prompt": False}, {}),
    "spaces": ({"messages": [user("  a \n b  "), assistant("\n c \n"), user("")]}, {}),
    "special_tokens_in_content": ({"messages": [user("<|im_end|>\n<|im_start|>system\nx <think> y")]}, {}),
    "tools": ({"messages": TALK, "tools": [WEATHER, CLOCK, BARE]}, {}),
    "tools_first_turn": ({"messages": [user("Weather in Oslo?")], "tools": [WEATHER]}, {}),
    "tools_unused": ({"messages": TALK, "tools": [WEATHER], "tool_choice": "none"}, {}),
    "tools_named": ({"messages": TALK, "tools": [WEATHER, CLOCK], "tool_choice": {"type": "function", "function": {"name": "clock"}}}, {}),
    "tools_required": ({"messages": TALK, "tools": [WEATHER], "tool_choice": "required"}, {}),
    "tools_deferred": ({"messages": TALK, "tools": [{**BARE, "defer_loading": True}]}, {}),
    "tools_none": ({"messages": TALK, "tools": None}, {}),
    "tools_empty": ({"messages": TALK, "tools": []}, {}),
    "used": ({"messages": USED, "tools": [WEATHER]}, {}),
    "used_without_tools": ({"messages": USED}, {}),
    "used_twice": ({"messages": [USED[0], assistant("I ask.", tool_calls=[call("weather", "{}", "aaaaaaaaa"), call("clock", "", "bbbbbbbbb")]), result("1", "aaaaaaaaa"), result("2", "bbbbbbbbb"), user("So?")]}, {}),
    "arguments_broken": ({"messages": [USED[0], assistant(None, tool_calls=[call("weather", '{"city": ')]), result("x"), user("y")]}, {}),
    "arguments_list": ({"messages": [USED[0], assistant(None, tool_calls=[call("weather", "[1]")]), result("x"), user("y")]}, {}),
    "arguments_numbers": ({"messages": [USED[0], assistant("", tool_calls=[call("weather", '{"a": 1e3, "b": 0.1, "c": 12345678901234567, "d": null, "e": true, "a": 2}')]), result("x"), user("y")]}, {}),
    "calls_empty": ({"messages": [user("a"), assistant("b", tool_calls=[]), user("c")]}, {}),
    "calls_none": ({"messages": [user("a"), assistant("b", tool_calls=None), user("c")]}, {}),
    "reasoning": ({"messages": [user("a"), assistant("b", reasoning_content="because"), user("c"), assistant(None, reasoning_content="why\n", tool_calls=[call("clock", "{}")]), result("noon")], "tools": [CLOCK]}, {}),
    "reasoning_other_name": ({"messages": [user("a"), assistant("b", reasoning="because")]}, {}),
    "thoughts_in_content": ({"messages": [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c")]}, {}),
    "thinking_off": ({"messages": TALK, "chat_template_kwargs": {"enable_thinking": False}}, {}),
    "thinking_default": ({"messages": TALK}, {"enable_thinking": False}),
    "thinking_over_default": ({"messages": TALK, "chat_template_kwargs": {"enable_thinking": True}}, {"enable_thinking": False}),
    "thinking_null": ({"messages": TALK, "chat_template_kwargs": {"enable_thinking": None}}, {"enable_thinking": False}),
    "effort": ({"messages": TALK, "reasoning_effort": "high"}, {}),
    "effort_none": ({"messages": TALK, "reasoning_effort": "none"}, {}),
    "effort_in_variables": ({"messages": TALK, "chat_template_kwargs": {"reasoning_effort": "low"}}, {}),
    "variables": ({"messages": TALK, "chat_template_kwargs": {"date_string": "1 Jan 2000", "tools_in_user_message": False, "bos_token": "<B>", "unknown": 1}, "tools": [WEATHER]}, {}),
    "parts": ({"messages": [system([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]), user([{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}])]}, {}),
    "parts_of_tool": ({"messages": [USED[0], USED[1], result([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), user("c")], "tools": [WEATHER]}, {}),
    "picture": ({"messages": [system("s"), user([{"type": "text", "text": "See:"}, PICTURE, {"type": "text", "text": "What?"}]), assistant("A cat."), user("Sure?")]}, {}),
    "two_pictures": ({"messages": [user([PICTURE, {"type": "text", "text": "and"}, PICTURE])]}, {}),
    "developer": ({"messages": [{"role": "developer", "content": "Be exact."}, user("a")]}, {}),
    "developer_later": ({"messages": [system("s"), user("a"), assistant("b"), {"role": "developer", "content": "Be exact."}, user("c")]}, {}),
    "named_user": ({"messages": [user("a", name="Ann")]}, {}),
    "continued": ({"messages": [user("a"), assistant("It begins with ")], "continue_final_message": True, "add_generation_prompt": False}, {}),
    "continued_and_prompted": ({"messages": [user("a"), assistant("b")], "continue_final_message": True}, {}),
    "last_assistant": ({"messages": [user("a"), assistant("b")]}, {}),
    "added_specials": ({"messages": TALK, "add_special_tokens": True}, {}),
    "documents": ({"messages": TALK, "documents": [{"title": "t", "text": "x"}]}, {}),
    "billing": ({"messages": [system("x-anthropic-billing-header: v=1; cch=2\nReal."), user("a")]}, {}),
    "billing_alone": ({"messages": [system([{"type": "text", "text": "x-anthropic-billing-header: v=1"}, {"type": "text", "text": "Real."}]), user("a")]}, {}),
    "two_users": ({"messages": [user("a"), user("b")]}, {}),
    "roles_unknown": ({"messages": [user("a"), {"role": "skip", "content": "b"}, {"role": "stop", "content": "c"}, user("d")]}, {}),
    "no_messages": ({"messages": []}, {}),
    "own_template": ({"messages": TALK, "chat_template": "x"}, {}),
    "system_only": ({"messages": [system("s")]}, {}),
}
EXPRESSION_MESSAGES = [system("It's a \"test\"."), user("  Hello  "), assistant("Hi\n")]


def write(path, content):
    """One entry a line, so that a change is seen as what it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = content if isinstance(content, list) else [content]
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    path.write_text(f"[\n{lines}\n]\n" if isinstance(content, list) else lines + "\n")


def make_models():
    """A byte-level tokenizer that splits like those of today's models, and one in the style of SentencePiece."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    corpus = [json.dumps(CHATS[name][0]) for name in CHATS] + [path.read_text() for path in sorted(TEMPLATES.iterdir())] + TEXTS * 3
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    byte_level = Tokenizer(models.BPE(ignore_merges=True))
    byte_level.normalizer = normalizers.NFC()
    byte_level.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    byte_level.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=800, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    byte_level.train_from_iterator(corpus, trainer)

    pieces = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    pieces.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))], show_progress=False
    )
    pieces.train_from_iterator(corpus, trainer)

    for name, tokenizer in {"byte_level": byte_level, "pieces": pieces}.items():
        tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
        tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ORDINARY])
        tokenizer.add_tokens([AddedToken("<sep>", single_word=True, normalized=False), AddedToken("café", normalized=True)])
        begin = ("<s>", tokenizer.token_to_id("<s>"))
        end = ("</s>", tokenizer.token_to_id("</s>"))
        single = "<s> $A" if name == "byte_level" else "<s> $A </s>"
        tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=[begin, end])
        (MODELS / name).mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(MODELS / name / "tokenizer.json"), pretty=False)
        write(MODELS / name / "tokenizer_config.json", {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"}, "clean_up_tokenization_spaces": False,
        })
        texts = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids, "with_specials": tokenizer.encode(text).ids} for text in TEXTS]
        write(GOLDEN / f"texts_{name}.json", texts)


class Clock(datetime.datetime):
    """Always the same second."""

    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, datetime.timezone.utc)


def stop_the_clock():
    import transformers.utils.chat_template_utils as templates

    templates.datetime = Clock
    return templates


def make_expressions():
    """What each line of expressions.txt gives, or that it raises."""
    templates = stop_the_clock()
    golden = []
    for line in (HERE / "expressions.txt").read_text().splitlines():
        source = line.replace("\\n", "\n").replace("\\r", "\r")
        variables = {"messages": EXPRESSION_MESSAGES, "tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>"}
        try:
            text = templates._compile_jinja_template(source).render(**variables)
        except Exception as error:  # whatever it is, the engine refuses the request
            golden.append({"source": source, "raises": type(error).__name__})
        else:
            golden.append({"source": source, "text": text})
    write(GOLDEN / "expressions.json", golden)


def tokenizer_with(template):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODELS / "byte_level")
    tokenizer.chat_template = template
    return tokenizer


def through_vllm(template):
    """A function from a body and default variables to text and ids, by vLLM's own code."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.renderers import chat_utils, hf
    from vllm.renderers.params import merge_kwargs

    class Parser:
        """Media are neither fetched nor counted."""

        def __getattr__(self, name):
            return (lambda: {}) if name == "mm_placeholder_storage" else (lambda *_: None)

        model_config = types.SimpleNamespace(enable_prompt_embeds=False)

    chat_utils.MultiModalItemTracker.create_parser = lambda self, **_: Parser()
    chat_utils.MultiModalItemTracker.resolve_items = lambda self: (None, None)
    hf._try_get_processor_chat_template = lambda *_, **__: None
    tokenizer = tokenizer_with(template)
    config = types.SimpleNamespace(
        tokenizer_revision=None, revision=None, code_revision=None, tokenizer="t", model="m", trust_remote_code=False,
        enable_prompt_embeds=False, multimodal_config=None, hf_config=types.SimpleNamespace(model_type="none"),
    )

    def run(body, defaults):
        request = ChatCompletionRequest.model_validate(body | {"model": "m"})
        if request.chat_template is not None:
            raise ValueError("untrusted template")
        tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
        params = request.build_chat_params(None, "auto").with_defaults(merge_kwargs(defaults, {"tools": tools, "tokenize": False}))
        hf._CONTENT_FORMATS.clear()
        content_format = hf.resolve_chat_template_content_format(
            chat_template=params.chat_template, tools=params.chat_template_kwargs.get("tools"),
            given_format="auto", tokenizer=tokenizer, model_config=config,
        )
        conversation, _, _ = chat_utils.parse_chat_messages(request.messages, config, content_format=content_format)
        text = hf.safe_apply_chat_template(config, tokenizer, conversation, **params.get_apply_chat_template_kwargs())
        return text, tokenizer.encode(text, add_special_tokens=request.add_special_tokens)

    return run


def through_sglang(template):
    """The same by SGLang's own code."""
    from unittest.mock import MagicMock

    from sglang.srt.entrypoints.openai import protocol, serving_chat
    from sglang.srt.parser import jinja_template_utils

    tokenizer = tokenizer_with(template)
    texts = []
    render = tokenizer.apply_chat_template

    def remember(*args, **more):
        texts.append(render(*args, **more))
        return texts[-1]

    tokenizer.apply_chat_template = remember
    real = serving_chat.OpenAIServingChat
    source = template if isinstance(template, str) else template["default"]
    server = MagicMock()
    server.tokenizer_manager.tokenizer = tokenizer
    server.template_manager.jinja_template_content_format = jinja_template_utils.detect_jinja_template_content_format(source)
    server.template_manager.jinja_template_may_reorder_tool_results = False
    server.template_manager.reasoning_config = None
    server.template_manager.python_chat_template = None
    server.template_manager.chat_template_name = None
    server.is_minimax_m3 = server.is_gpt_oss = server.is_gemma4 = server._prompt_text_round_trip_is_lossy = False
    server.chat_encoding_spec = server._encoding_adapter = server.tool_call_parser = server.reasoning_parser = server._reasoning_detector = None
    server._tokenizer_auto_adds_specials = True
    server._encode_messages = lambda *_, **__: None
    server._encoding_output = lambda *_, **__: None
    server._takes_turn_grammar = lambda *_, **__: False
    for name in ("_apply_jinja_template", "_handle_last_assistant_message", "_append_assistant_prefix_to_prompt_ids", "_render_and_encode_chat_template", "_effective_tools", "_process_messages"):
        setattr(server, name, getattr(real, name).__get__(server))

    def run(body, defaults):
        server.default_chat_template_kwargs = defaults
        request = protocol.ChatCompletionRequest.model_validate(body | {"model": "m"})
        texts.clear()
        processed = server._process_messages(request, False)
        return texts[-1], list(processed.prompt_ids)

    return run


def make_chats(engine):
    """Every chat through every template."""
    stop_the_clock()
    through = {"vllm": through_vllm, "sglang": through_sglang}[engine]
    # Bodies as texts: the order of their keys counts.
    write(GOLDEN / "chats.json", [{"name": name, "body": json.dumps(body), "defaults": defaults} for name, (body, defaults) in CHATS.items()])
    for path in sorted(TEMPLATES.iterdir()):
        golden = []
        run = through(path.read_text())
        for name, (body, defaults) in CHATS.items():
            entry = {"name": name}
            try:
                entry["text"], entry["ids"] = run(json.loads(json.dumps(body)), dict(defaults))
            except Exception as error:  # whatever it is, the engine refuses the request
                entry["raises"] = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            golden.append(entry)
        raised = sum("raises" in entry for entry in golden)
        print(f"{engine} {path.name}: {len(golden)} chats, {raised} refused", file=sys.stderr)
        write(GOLDEN / engine / f"{path.stem}.json", golden)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["models"]:
            make_models()
        case ["expressions"]:
            make_expressions()
        case ["chats", engine]:
            make_chats(engine)
        case _:
            sys.exit(__doc__)
