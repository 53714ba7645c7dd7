"""Errors as servers send them, one body each: provider, status, headers, body, and the fault that it is."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from earmark.tasks.annotation.errors import (
    AskError,
    AuthFailed,
    BadRequest,
    ModelMissing,
    QuotaExhausted,
    RateLimited,
    Refused,
    RowRefused,
    ServerError,
    Unavailable,
    Unsupported,
)


class Recorded(NamedTuple):
    """One answer of a server."""

    provider: str
    status: int
    body: str
    fault: type[AskError]
    wait_s: float | None = None  # seconds that it asks to wait
    headers: tuple[tuple[str, str], ...] = ()


def _openai(provider: str, http_status: int, fault: type[AskError], message: str, /, **fields: Any) -> Recorded:
    wait_s, headers = fields.pop("wait_s", None), tuple(fields.pop("headers", {}).items())
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None, **fields}
    return Recorded(provider, http_status, json.dumps({"error": error}), fault, wait_s, headers)


def _google(status: int, word: str, fault: type[AskError], message: str, *details: Any, **more: Any) -> Recorded:
    error = {"code": status, "message": message, "status": word, "details": list(details)}
    return Recorded("gemini", status, json.dumps({"error": error}), fault, **more)


def _quota(kind: str) -> dict[str, Any]:
    quota = f"GenerateRequestsPer{kind}PerProjectPerModel-FreeTier"
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]}


def _anthropic(status: int, kind: str, fault: type[AskError], message: str, **more: Any) -> Recorded:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}
    return Recorded("anthropic", status, json.dumps(body), fault, **more)


def _vllm(status: int, kind: str, fault: type[AskError], message: str) -> Recorded:
    flat = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
    return Recorded("vllm", status, json.dumps(flat), fault)


def _litellm(status: int, kind: str, fault: type[AskError], message: str, **more: Any) -> Recorded:
    error = {"message": message, "type": kind, "param": None, "code": str(status)}
    return Recorded("litellm", status, json.dumps({"error": error}), fault, **more)


EXCEEDED = "You exceeded your current quota, please check your plan and billing details."
HELP = (
    " For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits. To monitor your "
    "current usage, head to: https://ai.dev/rate-limit. \n* Quota exceeded for metric: "
    "generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 10, model: gemini-2.5-flash\n"
    "Please retry in 36.1s."
)


def _through(gateway: str, kind: str, fault: type[AskError]) -> Recorded:
    """Google's refusal as a gateway quotes it; the quota's id stands beyond the sentence that is looked at."""
    links = {
        "@type": "type.googleapis.com/google.rpc.Help",
        "links": [{"url": "https://ai.google.dev/gemini-api/docs"}] * 5,
    }
    error = _google(
        429, "RESOURCE_EXHAUSTED", fault, EXCEEDED + HELP, links, _quota(kind), {"retryDelay": "36s"}, wait_s=36.0
    )
    said = json.dumps(json.loads(error.body), indent=2)
    if gateway == "litellm":
        message = f"litellm.RateLimitError: geminiException - {said}. Received Model Group=lab"
        return _litellm(429, "throttling_error", fault, message, wait_s=36.0)
    metadata = {"raw": said, "provider_name": "Google AI Studio"}
    body = {"error": {"message": "Provider returned error", "code": 429, "metadata": metadata}, "user_id": "u"}
    return error._replace(provider=gateway, body=json.dumps(body))


RECORDED = (
    # OpenAI
    _openai("openai", 401, AuthFailed, "Incorrect API key provided: sk-ab*cd.", code="invalid_api_key"),
    _openai("openai", 429, QuotaExhausted, EXCEEDED, type="insufficient_quota", code="insufficient_quota"),
    _openai("openai", 429, QuotaExhausted, EXCEEDED, type="insufficient_quota"),
    _openai("openai", 429, QuotaExhausted, "Your account is not active.", code="billing_not_active"),
    _openai("openai", 400, QuotaExhausted, "Billing hard limit has been reached", code="billing_hard_limit_reached"),
    _openai("openai", 429, RateLimited, "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used "
            "29000, Requested 2000. Please try again in 2s.", type="tokens", code="rate_limit_exceeded",
            wait_s=2.5, headers={"x-ratelimit-reset-tokens": "2.5s", "x-ratelimit-remaining-tokens": "0",
                                 "x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "9"}),
    _openai("openai", 429, QuotaExhausted, "Rate limit reached for gpt-4o in organization org-x on requests per day "
            "(RPD): Limit 200, Used 200, Requested 1. Please try again in 7m12s.", type="requests",
            code="rate_limit_exceeded"),
    _openai("openai", 404, ModelMissing, "The model `gpt-9` does not exist or you do not have access to it.",
            code="model_not_found"),
    _openai("openai", 400, Unsupported, "Unsupported value: 'temperature' does not support 0 with this model.",
            param="temperature", code="unsupported_value"),
    _openai("openai", 400, Unsupported, "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.", param="max_tokens", code="unsupported_parameter"),
    _openai("openai", 400, RowRefused, "This model's maximum context length is 8192 tokens.",
            code="context_length_exceeded"),
    _openai("openai", 400, BadRequest, "Invalid 'messages[0].content': expected a string.", code="invalid_type"),
    _openai("openai", 500, ServerError, "The server had an error processing your request.", type="server_error"),
    _openai("openai", 503, Unavailable, "The engine is currently overloaded, please try again later"),
    # Azure
    _openai("azure", 400, Refused, "The response was filtered due to the prompt triggering Azure OpenAI's content "
            "management policy.", type=None, param="prompt", code="content_filter", status=400,
            innererror={"code": "ResponsibleAIPolicyViolation"}),
    Recorded("azure", 404, '{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does '
             'not exist."}}', ModelMissing),
    Recorded("azure", 401, '{"error":{"code":"401","message":"Access denied due to invalid subscription key."}}',
             AuthFailed),
    Recorded("azure", 429, '{"error":{"code":"429","message":"Requests have exceeded the call rate limit of your '
             'current OpenAI S0 pricing tier. Please retry after 7 seconds."}}', RateLimited, 7.0,
             (("retry-after", "7"), ("retry-after-ms", "7000"))),
    Recorded("azure", 429, '{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation have '
             'exceeded call rate limit. Please retry after 86400 seconds."}}', QuotaExhausted, 3600.0,
             (("retry-after", "86400"),)),
    Recorded("azure", 403, '{"error":{"code":"403","message":"Public access is disabled."}}', AuthFailed),
    # Gemini
    _google(400, "INVALID_ARGUMENT", AuthFailed, "API key expired. Please renew the API key.",
            {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}),
    _google(400, "INVALID_ARGUMENT", AuthFailed, "API key not valid. Please pass a valid API key."),
    _google(403, "PERMISSION_DENIED", AuthFailed, "Generative Language API has not been used in project 7 before."),
    _google(429, "RESOURCE_EXHAUSTED", QuotaExhausted, EXCEEDED, _quota("Day"), {"retryDelay": "36s"}, wait_s=36.0),
    _google(429, "RESOURCE_EXHAUSTED", RateLimited, EXCEEDED, _quota("Minute"), {"retryDelay": "36s"}, wait_s=36.0),
    _google(500, "INTERNAL", QuotaExhausted, EXCEEDED, _quota("Day")),
    _google(503, "UNAVAILABLE", RateLimited, EXCEEDED, _quota("Minute")),
    _google(404, "NOT_FOUND", ModelMissing, "models/gemini-9 is not found for API version v1beta."),
    _google(400, "INVALID_ARGUMENT", Unsupported, "Invalid JSON payload received. Unknown name \"logprobz\"."),
    _google(400, "INVALID_ARGUMENT", RowRefused, "The input token count (1200000) exceeds the maximum number."),
    _google(400, "FAILED_PRECONDITION", QuotaExhausted, "Gemini API free tier is not available in your country. "
            "Please enable billing on your project in Google AI Studio, and billing must be enabled."),
    _google(503, "UNAVAILABLE", Unavailable, "The model is overloaded. Please try again later."),
    # Anthropic, and its compatible endpoint
    _anthropic(401, "authentication_error", AuthFailed, "invalid x-api-key"),
    _anthropic(403, "permission_error", AuthFailed, "Your API key does not have permission to use the resource."),
    _anthropic(400, "invalid_request_error", QuotaExhausted, "Your credit balance is too low to access the API. Please "
               "go to Plans & Billing to upgrade or purchase credits."),
    _anthropic(404, "not_found_error", ModelMissing, "model: claude-9"),
    _anthropic(429, "rate_limit_error", RateLimited, "This request would exceed your rate limit of 50 requests per "
               "minute.", wait_s=11.0, headers=(("retry-after", "11"),)),
    _anthropic(529, "overloaded_error", Unavailable, "Overloaded"),
    _anthropic(400, "invalid_request_error", RowRefused, "prompt is too long: 210000 tokens > 200000 maximum"),
    # OpenRouter
    Recorded("openrouter", 402, '{"error":{"message":"Insufficient credits. Add more using the site.","code":402}}',
             QuotaExhausted),
    Recorded("openrouter", 429, '{"error":{"message":"Rate limit exceeded: free-models-per-day","code":429}}',
             QuotaExhausted),
    Recorded("openrouter", 429, '{"error":{"message":"Rate limit exceeded: free-models-per-min.","code":429}}',
             RateLimited),
    Recorded("openrouter", 400, '{"error":{"message":"lab/none is not a valid model ID","code":400}}', ModelMissing),
    Recorded("openrouter", 404, '{"error":{"message":"No endpoints found for lab/none.","code":404}}', ModelMissing),
    Recorded("openrouter", 403, '{"error":{"message":"Your chosen model requires moderation and your input was '
             'flagged","code":403,"metadata":{"reasons":["violence"]}}}', Refused),
    Recorded("openrouter", 403, '{"error":{"message":"Key limit exceeded (total limit)","code":403}}', QuotaExhausted),
    Recorded("openrouter", 502, '{"error":{"message":"Provider returned error","code":502}}', Unavailable),
    *(_through(gateway, kind, fault) for gateway in ("openrouter", "litellm")
      for kind, fault in (("Minute", RateLimited), ("Day", QuotaExhausted))),
    # LiteLLM's proxy
    _litellm(400, "budget_exceeded", QuotaExhausted,
             "Budget has been exceeded! Current cost: 0.204, Max budget: 0.2"),
    _litellm(429, "throttling_error", QuotaExhausted, f"litellm.RateLimitError: OpenAIException - {EXCEEDED}. Received "
             "Model Group=lab"),
    _litellm(429, "None", QuotaExhausted, "No deployments available - crossed budget: Exceeded budget for deployment"),
    _litellm(429, "throttling_error", RateLimited, "litellm.RateLimitError: Model rate limit exceeded. RPM limit=20",
             wait_s=60.0, headers=(("llm_provider-retry-after", "60"),)),
    _litellm(400, "None", ModelMissing, "{'error': '/chat/completions: Invalid model name passed in model=lab.'}"),
    _litellm(401, "token_not_found_in_db", AuthFailed, "Authentication Error, Invalid proxy server token passed."),
    _litellm(400, "expired_key", AuthFailed, "Authentication Error - Expired Key."),
    _litellm(400, "None", Unsupported, "litellm.UnsupportedParamsError: openai does not support parameters: ['x']"),
    # vLLM and SGLang
    _vllm(404, "NotFoundError", ModelMissing, "The model `lab` does not exist."),
    _vllm(400, "BadRequestError", BadRequest, "At most 1 audio(s) may be provided in one prompt."),
    _vllm(400, "BadRequestError", RowRefused, "This model's maximum context length is 2048 tokens. However, you asked"),
    _vllm(400, "BadRequestError", Unsupported, "lab is not a multimodal model"),
    _vllm(500, "InternalServerError", ServerError, "EngineCore encountered an issue. See stack trace (above)."),
    Recorded("vllm", 400, '{"object":"error","message":"1 validation error: input_value=\'a forum says: budget has '
             'been exceeded, per day\'","type":"BadRequestError","code":400}', BadRequest),
    Recorded("sglang", 400, '{"object":"error","message":"The input (9001 tokens) is longer than the model\'s context '
             'length (8192 tokens).","type":"BadRequestError","code":400}', RowRefused),
    # TGI, llama.cpp, Ollama, LM Studio
    Recorded("tgi", 422, '{"error":"Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",'
             '"error_type":"validation"}', RowRefused),
    Recorded("tgi", 429, '{"error":"Model is overloaded","error_type":"overloaded"}', RateLimited),
    Recorded("llama.cpp", 503, '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}',
             Unavailable),
    Recorded("llama.cpp", 500, '{"error":{"code":500,"message":"audio input is not supported - hint: if this is '
             'unexpected, you may need to provide the mmproj","type":"server_error"}}', Unsupported),
    Recorded("llama.cpp", 400, '{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context '
             'size (4096 tokens)","type":"exceed_context_size_error"}}', RowRefused),
    Recorded("ollama", 404, json.dumps({"error": {"message": "model 'lab' not found, try pulling it first"}}),
             ModelMissing),
    Recorded("ollama", 400, '{"error":"model does not support image input"}', Unsupported),
    Recorded("lm-studio", 400, '{"error":{"message":"No models loaded. Please load a model in the developer page."}}',
             ModelMissing),
    # A gateway's own pages
    Recorded("cloudflare", 502, "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>",
             Unavailable),
    Recorded("cloudflare", 403, "<!DOCTYPE html><html><head><title>Just a moment...</title></head></html>", AuthFailed),
    Recorded("nginx", 413, "<html><h1>413 Request Entity Too Large</h1></html>", RowRefused),
    # more words for money, quotas and keys: unknown, each was refused for its row alone, or asked again and again
    *(
        _openai("words", status, fault, message, **fields)
        for status, fault, message, fields in (
            (400, QuotaExhausted, "You have reached your specified API usage limits.", {}),
            (429, QuotaExhausted, "Your prepayment credits are depleted.", {"code": 429}),
            (429, QuotaExhausted, "Your account is suspended", {"type": "exceeded_current_quota_error"}),
            (429, QuotaExhausted, "ExceededTokenBudget: Current spend for token: 1.2", {"type": "auth_error"}),
            (429, QuotaExhausted, "Free allocated quota exceeded.", {"code": "Throttling.AllocationQuota"}),
            (429, RateLimited, "Allocated quota exceeded, please increase your limit.", {"code": "Throttling"}),
            (429, QuotaExhausted, "余额不足或无可用资源包,请充值。", {"code": "1113"}),
            (429, QuotaExhausted, "该API已达今日调用次数限额", {"code": "1304"}),
            (400, QuotaExhausted, "Not enough credits", {}),
            (400, QuotaExhausted, "No credits remaining", {}),
            (400, QuotaExhausted, "You have exhausted your credits", {}),
            (400, QuotaExhausted, "Your free trial has expired.", {}),
            (403, AuthFailed, "该令牌已过期", {"type": "new_api_error"}),
            (400, AuthFailed, "Invalid API-key provided.", {"code": "InvalidApiKey"}),
            (400, AuthFailed, "The API key has been revoked", {}),
            (400, AuthFailed, "token expired or incorrect", {"code": "1000"}),
            (400, AuthFailed, "The security token included in the request is expired", {}),
            (400, AuthFailed, "This organization has been disabled.", {}),
            (400, ModelMissing, "The model `gpt-4o-audio-preview` has been deprecated", {}),
            (400, ModelMissing, "The provided model identifier is invalid.", {}),
            (400, BadRequest, "Text contains: the key expired in verse two, and quota is a word", {}),
            (400, BadRequest, "Invalid content: There is no balance between voice and guitar", {}),
            (400, BadRequest, "Invalid content: My free trial has long ended", {}),
            (400, BadRequest, "max_tokens has been deprecated; use max_completion_tokens", {}),
            (400, BadRequest, "Failed to fetch audio: signed URL token has expired", {}),
            (400, BadRequest, "Invalid content: a model has been retired from the runway", {}),
            (500, QuotaExhausted, "Insufficient credits", {}),
            (503, QuotaExhausted, EXCEEDED, {"type": "server_error"}),
            (500, AuthFailed, "litellm.InternalServerError: OpenAIException - API key expired", {}),
            (503, AuthFailed, "upstream: the security token included in the request is expired", {}),
            (500, ModelMissing, "The model `gemini-1.5-pro` does not exist", {}),
            (503, Unavailable, "model worker for gemini-1.5-pro not found", {}),
            (500, ModelMissing, "Model gpt-4.5-preview does not exist", {}),
            (500, ServerError, "The model's cache entry does not exist", {}),
            (503, Unavailable, "The model worker does not exist", {}),
            (502, Unavailable, "model `m` does not exist yet, loading", {}),
            (503, Unavailable, "The model 'lab/m' does not exist or is still loading", {}),
            (500, ServerError, "model lab/m-7b does not exist yet", {}),
            (503, ModelMissing, "The model `m` does not exist. Loading it needs a token", {}),
            (404, ModelMissing, "The model worker does not exist", {}),
            (503, ModelMissing, "This model is no longer available.", {}),
            (502, ModelMissing, "Model gpt-4.5-preview was shut down on 2025-07-14", {}),
            (500, ServerError, "Failed to parse input at pos 0: 'my API key expired, the model does not exist'", {}),
            (503, Unavailable, "The balance of this queue is uneven; there is no model with free slots", {}),
        )
    ),
)  # fmt: skip
WITHIN = (
    *(Recorded("gateway", 402, json.dumps({"error": {"message": f"{said} for today", "code": "insufficient_quota"}}),
               QuotaExhausted) for said in ("User quota exhausted", "Nothing left")),
    Recorded("gateway", 402, '{"id":"gen-1","error":{"message":"Nothing left","type":"insufficient_quota"}}',
             QuotaExhausted),
    Recorded("gateway", 401, '{"error":{"message":"Who are you?","code":"invalid_api_key"}}', AuthFailed),
    Recorded("gateway", 401, '{"error":"Incorrect API key provided"}', AuthFailed),
    Recorded("gateway", 429, '{"error":{"message":"30 requests per minute at most","code":"slow_down"}}', RateLimited),
    Recorded("gateway", 429, '{"error":{"message":"wait","code":"429"}}', RateLimited),
    Recorded("gateway", 400, '{"error":{"message":"No.","code":"content_filter"}}', Refused),
    Recorded("gateway", 400, '{"error":{"message":"No.","code":"context_length_exceeded"}}', RowRefused),
    Recorded("gateway", 500, '{"error":{"message":"overloaded"}}', ServerError),
    Recorded("gateway", 503, '{"message":"try later","code":503}', Unavailable),
    Recorded("vllm", 404, '{"object":"error","message":"The model m does not exist","type":"NotFoundError","code":404}',
             ModelMissing),
    Recorded("fastchat", 404, '{"object":"error","message":"The model m does not exist","code":40401}', ModelMissing),
    Recorded("zhipu", 402, '{"code":1113,"msg":"Insufficient balance"}', QuotaExhausted),
    Recorded("zhipu", 500, '{"code":1234,"msg":"network error"}', ServerError),
    Recorded("fastapi", 401, '{"detail":"API key expired"}', AuthFailed),
    Recorded("fastapi", 402, '{"detail":{"error":"quota","message":"Insufficient credits"}}', QuotaExhausted),
    Recorded("gateway", 404, '{"success":false,"message":"The model gpt-4.1-mini does not exist"}', ModelMissing),
    Recorded("gateway", 500, '{"error":{"message":"API key expired","code":500}}', AuthFailed),
    Recorded("gateway", 503, '{"error":{"message":"Insufficient credits","code":503}}', QuotaExhausted),
    Recorded("openrouter", 402, '{"id":"g","choices":[],"error":{"code":402,"message":"Add more."}}', QuotaExhausted),
    Recorded("minimax", 402, '{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}',
             QuotaExhausted),
    Recorded("minimax", 500, '{"base_resp":{"status_code":1002,"status_msg":"rate limit"}}', ServerError),
    Recorded("baidu", 402, '{"error_code":17,"error_msg":"Open api daily request limit reached"}', QuotaExhausted),
    Recorded("openrouter", 401, '{"id":"g","choices":null,"error":{"message":"API key expired"}}', AuthFailed),
)  # fmt: skip
"""Errors as gateways send them with status 200, and the status that each is."""
