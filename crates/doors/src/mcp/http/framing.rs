//! HTTP around the messages: what an address and its headers ask for, and how answers look.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};

use crate::mcp::{
    answer::Answer,
    definitions::{Names, View},
    fault::Fault,
};

/// `?names=plain` asks for names without dots, `?mode=chat` for the tools of that mode only.
pub(super) fn view(query: Option<&str>) -> Result<View, Fault> {
    let mut view = View::default();
    for pair in query.unwrap_or_default().split('&') {
        match pair.split_once('=') {
            Some(("names", "plain")) => view.names = Names::Plain,
            Some(("names", "exact")) => view.names = Names::Exact,
            Some(("names", _)) => {
                return Err(Fault::invalid_request("`names` in the address can be `exact` or `plain`"));
            }
            Some(("mode", mode)) => {
                view.mode = Some(mode.parse().map_err(|unknown: String| Fault::invalid_request(unknown))?);
            }
            _ => {}
        }
    }
    Ok(view)
}

/// A media type without its parameters.
pub(super) fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// Whether a client takes this media type. One that says nothing takes everything.
pub(in crate::mcp) fn accepts(headers: &HeaderMap, kind: &str, subtype: &str) -> bool {
    let mut said = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    if said.peek().is_none() {
        return true;
    }
    said.flat_map(|value| value.split(',')).map(essence).any(|range| {
        range == "*/*"
            || range.split_once('/').is_some_and(|(its_kind, its_subtype)| {
                its_kind.eq_ignore_ascii_case(kind)
                    && (its_subtype == "*" || its_subtype.eq_ignore_ascii_case(subtype))
            })
    })
}

pub(in crate::mcp) fn json(text: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(in crate::mcp) fn events(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Some proxies hold events back unless told not to.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

pub(in crate::mcp) fn answer(answer: Answer) -> Response {
    let mut response = json(answer.text);
    *response.status_mut() = answer.status;
    response
}

/// Taken note of; no answer follows.
pub(in crate::mcp) fn nothing() -> Response {
    empty(StatusCode::ACCEPTED)
}

pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

pub(in crate::mcp) fn fault(fault: &Fault, id: Option<&str>) -> Response {
    let mut response = json(fault.render(id));
    *response.status_mut() = fault.status;
    response
}

#[cfg(test)]
mod tests {
    use aegis_core::mode::Mode;

    use super::*;

    fn accept(values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::ACCEPT, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn accept_is_read_leniently() {
        let both = |values: &[&'static str]| {
            let headers = accept(values);
            (accepts(&headers, "application", "json"), accepts(&headers, "text", "event-stream"))
        };
        assert_eq!(both(&[]), (true, true));
        assert_eq!(both(&["*/*"]), (true, true));
        assert_eq!(both(&["text/event-stream;q=0.9, Application/JSON"]), (true, true));
        assert_eq!(both(&["application/json", "text/event-stream"]), (true, true));
        assert_eq!(both(&["application/*"]), (true, false));
        assert_eq!(both(&["text/html"]), (false, false));
        assert_eq!(both(&[""]), (false, false));
    }

    #[test]
    fn names_and_mode_come_from_the_address() {
        let names = |query| view(query).map(|view| view.names);
        assert_eq!(names(None), Ok(Names::Exact));
        assert_eq!(names(Some("a=b&names=plain")), Ok(Names::Plain));
        assert_eq!(names(Some("names=exact&mode=chat")), Ok(Names::Exact));
        assert!(names(Some("names=fancy")).is_err());
        assert_eq!(view(Some("mode=execute")).unwrap().mode, Some(Mode::Execute));
        for unknown in ["mode=", "mode=Chat", "mode=workflow"] {
            let refused = view(Some(unknown)).unwrap_err();
            assert_eq!(refused.status, StatusCode::BAD_REQUEST);
            assert!(refused.message.contains("chat, agentic, architect, operator, execute"), "{refused:?}");
        }
    }
}
