"""The interface of adapters: required methods and defaults."""

import pytest

import openclaw_a2a
from openclaw_a2a import AdapterMetadata, AgentAdapter, CancelledByAdapter, Part


class Whole(AgentAdapter):
    """Answers in one go."""

    is_closed = False

    async def invoke(self, user_input, context_id=None, **kwargs):
        return [Part.of_text(user_input), Part.of_data({"n": 1})]

    async def close(self):
        self.is_closed = True


class Streaming(Whole):
    async def stream(self, user_input, context_id=None, **kwargs):
        yield user_input


def test_adapter_without_invoke_cannot_be_created():
    class Silent(AgentAdapter):
        pass

    with pytest.raises(TypeError, match="invoke"):
        Silent()


def test_only_an_adapter_that_overrides_stream_streams():
    assert not Whole().supports_streaming()
    assert Streaming().supports_streaming()


async def test_default_stream_yields_what_invoke_returns():
    pieces = [piece async for piece in Whole().stream("hi")]
    assert pieces == [Part.of_text("hi"), Part.of_data({"n": 1})]


async def test_cancel_and_close_are_optional():
    adapter = Streaming()
    assert await AgentAdapter.close(adapter) is None
    assert await adapter.cancel("context", context=None) is None


async def test_adapter_is_closed_at_the_end_of_its_block():
    async with Whole() as adapter:
        assert not adapter.is_closed
    assert adapter.is_closed


def test_metadata_has_the_documented_defaults():
    metadata = Whole().get_metadata()
    assert metadata == AdapterMetadata(
        name="",
        description="",
        version="1.0.0",
        skills=[],
        input_modes=["text"],
        output_modes=["text"],
        streaming=False,
        provider=None,
        documentation_url=None,
        icon_url=None,
    )
    assert AdapterMetadata().input_modes is not metadata.input_modes


def test_cancelled_by_adapter_is_an_exception_like_any_other():
    assert issubclass(CancelledByAdapter, Exception)


def test_part_is_its_own_root_for_code_of_sdk_0_3():
    part = Part.of_text("hi")
    assert part.root is part
    assert part.root.text == "hi"


# Names of the package a2a-adapter, which programs written for it import.
ALIASES = {
    "BaseA2AAdapter": "AgentAdapter",
    "CallableAdapter": "InputsAdapter",
    "CancelledByAdapterError": "CancelledByAdapter",
    "OpenClawAdapter": "OpenClawAgentAdapter",
}


def test_every_public_name_is_at_the_root_of_the_package():
    wanted = {
        "AdapterMetadata",
        "AgentAdapter",
        "AgentCard",
        "CancelledByAdapter",
        "Message",
        "OpenClawAgentAdapter",
        "Part",
        "Task",
        "build_agent_card",
        "load_a2a_agent",
        "load_adapter",
        "register_adapter",
        "serve_agent",
        "to_a2a",
    }
    assert wanted <= set(openclaw_a2a.__all__)
    assert list(openclaw_a2a.__all__) == sorted(openclaw_a2a.__all__)
    for name in openclaw_a2a.__all__:
        found = getattr(openclaw_a2a, name)
        own_name = getattr(found, "__name__", name)  # a union of types has none
        assert own_name == ALIASES.get(name, name)
