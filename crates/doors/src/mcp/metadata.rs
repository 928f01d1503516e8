//! How a client without a credential learns what it needs: RFC 9728 metadata, and the challenge that leads to it.

use std::{net::IpAddr, sync::Arc};

use aegis_core::{Violation, ViolationKind};
use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header, request::Parts, uri::Authority},
    response::Response,
};
use serde_json::json;

use super::{
    fault::Fault,
    http::{self, Transport},
};
use crate::Doors;

pub(super) const PATH: &str = "/.well-known/oauth-protected-resource";

/// What this resource is and how to authenticate. There is no authorisation server to name: an operator makes the
/// tokens.
pub(super) async fn document(State(transport): State<Arc<Transport>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let doors = &transport.conversation.doors;
    let text = json!({
        "resource": format!("{}/mcp", origin(doors, &parts)),
        "resource_name": format!("{} (aegis {})", doors.name, doors.version),
        "bearer_methods_supported": ["header"],
        "aegis_token_source": "Tokens are made by this node's operator: `aegis token create`. There is no sign-in page.",
    });
    http::json(text.to_string().into_bytes())
}

/// A refusal for want of a good credential, which says where to read more.
pub(super) fn challenge(doors: &Doors, parts: &Parts, violation: &Violation) -> Response {
    let refused = Fault::refused(violation);
    // To a client of MCP, 404 means that its session has ended; here it is a context that is not there.
    let refused = match refused.status {
        StatusCode::NOT_FOUND => refused.with_status(StatusCode::BAD_REQUEST),
        _ => refused,
    };
    let mut response = http::fault(&refused, None);
    if response.status() != StatusCode::UNAUTHORIZED {
        return response;
    }
    let error = match violation.kind {
        ViolationKind::CredentialExpired => {
            " error=\"invalid_token\", error_description=\"the token has expired\","
        }
        // Who sent nothing is told nothing but where to begin.
        _ if !parts.headers.contains_key(header::AUTHORIZATION) => "",
        _ => " error=\"invalid_token\", error_description=\"the token is not known\",",
    };
    let origin = origin(doors, parts);
    let value = format!("Bearer realm=\"aegis\",{error} resource_metadata=\"{origin}{PATH}/mcp\"");
    if let Ok(value) = HeaderValue::from_str(&value) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

/// The address as the client wrote it. Beyond this machine there is always TLS in front.
pub(super) fn origin(doors: &Doors, parts: &Parts) -> String {
    let written = parts
        .uri
        .authority()
        .map(|authority| authority.as_str())
        .or_else(|| parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()))
        .filter(|host| host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b)))
        .and_then(|host| host.parse::<Authority>().ok());
    let Some(authority) = written else { return format!("http://{}", doors.network.listen) };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    let here = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    format!("{}://{authority}", if here { "http" } else { "https" })
}
