import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkflowRunEvent(_message.Message):
    __slots__ = ("event_id", "job_id", "workflow_name", "type", "step", "attempt", "verdict", "error", "detail", "occurred_at", "seq", "tenant_id", "status", "business_key", "labels")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPE_UNSPECIFIED: _ClassVar[WorkflowRunEvent.Type]
        ACCEPTED: _ClassVar[WorkflowRunEvent.Type]
        STEP_CHECKPOINT: _ClassVar[WorkflowRunEvent.Type]
        WAITING: _ClassVar[WorkflowRunEvent.Type]
        COMPLETED: _ClassVar[WorkflowRunEvent.Type]
        FAILED: _ClassVar[WorkflowRunEvent.Type]
        DEAD: _ClassVar[WorkflowRunEvent.Type]
        CANCELLED: _ClassVar[WorkflowRunEvent.Type]
        REOPENED: _ClassVar[WorkflowRunEvent.Type]
    TYPE_UNSPECIFIED: WorkflowRunEvent.Type
    ACCEPTED: WorkflowRunEvent.Type
    STEP_CHECKPOINT: WorkflowRunEvent.Type
    WAITING: WorkflowRunEvent.Type
    COMPLETED: WorkflowRunEvent.Type
    FAILED: WorkflowRunEvent.Type
    DEAD: WorkflowRunEvent.Type
    CANCELLED: WorkflowRunEvent.Type
    REOPENED: WorkflowRunEvent.Type
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BUSINESS_KEY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    job_id: str
    workflow_name: str
    type: WorkflowRunEvent.Type
    step: str
    attempt: int
    verdict: str
    error: str
    detail: str
    occurred_at: _timestamp_pb2.Timestamp
    seq: int
    tenant_id: str
    status: str
    business_key: str
    labels: str
    def __init__(self, event_id: _Optional[str] = ..., job_id: _Optional[str] = ..., workflow_name: _Optional[str] = ..., type: _Optional[_Union[WorkflowRunEvent.Type, str]] = ..., step: _Optional[str] = ..., attempt: _Optional[int] = ..., verdict: _Optional[str] = ..., error: _Optional[str] = ..., detail: _Optional[str] = ..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., seq: _Optional[int] = ..., tenant_id: _Optional[str] = ..., status: _Optional[str] = ..., business_key: _Optional[str] = ..., labels: _Optional[str] = ...) -> None: ...

class WorkflowRunRequest(_message.Message):
    __slots__ = ("job_id", "workflow_name", "input", "business_key", "labels")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    BUSINESS_KEY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    workflow_name: str
    input: str
    business_key: str
    labels: str
    def __init__(self, job_id: _Optional[str] = ..., workflow_name: _Optional[str] = ..., input: _Optional[str] = ..., business_key: _Optional[str] = ..., labels: _Optional[str] = ...) -> None: ...

class WorkflowStepCompletion(_message.Message):
    __slots__ = ("job_id", "step", "response")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    step: str
    response: str
    def __init__(self, job_id: _Optional[str] = ..., step: _Optional[str] = ..., response: _Optional[str] = ...) -> None: ...

class WorkflowRunState(_message.Message):
    __slots__ = ("job_id", "tenant_id", "workflow_name", "status", "step", "attempt", "verdict", "error", "business_key", "seq", "created_at", "updated_at")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_NAME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BUSINESS_KEY_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    tenant_id: str
    workflow_name: str
    status: str
    step: str
    attempt: int
    verdict: str
    error: str
    business_key: str
    seq: int
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, job_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., workflow_name: _Optional[str] = ..., status: _Optional[str] = ..., step: _Optional[str] = ..., attempt: _Optional[int] = ..., verdict: _Optional[str] = ..., error: _Optional[str] = ..., business_key: _Optional[str] = ..., seq: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
