//! The request path: from the request port over the router to a worker, which turns a request into
//! typed messages for the other branches; and the queues of authentications and log-ins.

pub(crate) mod auth_queue;
pub(crate) mod carry_out;
pub(crate) mod login_worker;
pub(crate) mod logins;
pub(crate) mod mworker;
pub(crate) mod req_router;
pub(crate) mod transports;
