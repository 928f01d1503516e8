//! Tools of the `assistant` group.

pub mod approval_request;
pub mod http_fetch;
pub mod local_file_read;
pub mod web_search;
