"""A callback for LiteLLM that does with a reply what its hooks may; a request's text says which.

Its file is copied next to LiteLLM's configuration, from where LiteLLM imports it.
"""

from __future__ import annotations

from typing import Any

from litellm import ModelResponse
from litellm.integrations.custom_guardrail import ModifyResponseException
from litellm.integrations.custom_logger import CustomLogger

OURS = "our reply"


def _asked(data: Any) -> str:
    messages = data.get("messages") or [{}]
    return str(messages[0].get("content"))


def _reply() -> ModelResponse:
    return ModelResponse(choices=[{"message": {"role": "assistant", "content": OURS}}])


class Hooks(CustomLogger):
    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: Any, call_type: Any
    ):
        match _asked(data):
            case "pre_call returns a text":
                return OURS
            case "pre_call returns a reply":
                return _reply()
            case "pre_call raises a reply":
                raise ModifyResponseException(message=OURS, model="fast", request_data=data)
            case "pre_call mocks a reply":
                return {**data, "mock_response": _reply()}
        return None

    async def async_post_call_failure_hook(
        self, request_data: Any, original_exception: Any, user_api_key_dict: Any, *_: Any, **__: Any
    ):
        if _asked(request_data) == "failure returns a reply":
            return _reply()
        return None

    async def async_post_call_success_hook(self, data: Any, user_api_key_dict: Any, response: Any):
        return _reply() if _asked(data).startswith("success") else None


hooks = Hooks()
