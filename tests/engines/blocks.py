"""The tiny model's tokens and vLLM's names of blocks, worked out a second time without vLLM."""

import hashlib

import cbor2

BLOCK_TOKENS = 32
GROUP = b"\0\0\0\0"


def tokens_of(prompt):
    """The tiny model has a token a byte, numbered as in its vocabulary of sorted signs."""
    return [_TOKENS[byte] for byte in prompt.encode()]


def _byte_tokens():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    signs, extra = {}, 0
    for byte in range(256):
        if byte in printable:
            signs[byte] = chr(byte)
        else:
            signs[byte] = chr(256 + extra)
            extra += 1
    order = sorted(signs.values())
    return {byte: order.index(sign) for byte, sign in signs.items()}


_TOKENS = _byte_tokens()


def block_keys(tokens, block_tokens=BLOCK_TOKENS):
    """The keys of all full blocks: vLLM's published way of naming blocks, and our suffix."""
    parent = hashlib.sha256(cbor2.dumps("vllm-none-hash", canonical=True)).digest()
    keys = []
    for first in range(0, len(tokens) - block_tokens + 1, block_tokens):
        block = cbor2.dumps((parent, tuple(tokens[first : first + block_tokens]), None), canonical=True)
        parent = hashlib.sha256(block).digest()
        keys.append(parent + GROUP)
    return keys


def loadable(prompt, block_tokens=BLOCK_TOKENS):
    """Tokens of a prompt that can come from outside: full blocks, and never the last token."""
    return (len(prompt.encode()) - 1) // block_tokens * block_tokens


def prompt_keys(prompts):
    """The keys of every block of these prompts that can come from outside."""
    return {key for prompt in prompts for key in block_keys(tokens_of(prompt))[: loadable(prompt) // BLOCK_TOKENS]}
