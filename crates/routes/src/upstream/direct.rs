//! The way out to addresses that an operator wrote down.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use aegis_core::config::{EgressConfig, PrivateTarget};
use aegis_mcp_client::{Http, http::Body};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use url::Host;

use crate::egress::{Egress, EgressError, Outlet};

/// Ways that are kept: as many as there can be servers, each with a token endpoint.
const MOST_KEPT: usize = 1024;

/// Sends to servers and their token endpoints. An operator who writes an address of this machine or network means it; a
/// name that merely leads there needs `egress.allow_private`, as for everybody.
#[derive(derive_more::Debug)]
pub struct Direct {
    config: EgressConfig,
    open: Outlet,
    #[debug(skip)]
    literal: Mutex<HashMap<String, Outlet>>,
}

impl Direct {
    pub fn new(config: &EgressConfig) -> Result<Self, EgressError> {
        Ok(Self { open: Egress::new(config)?.outlet(), config: config.clone(), literal: Mutex::default() })
    }

    fn outlet(&self, host: &str) -> Result<Outlet, String> {
        let literal = match Host::parse(host) {
            Ok(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Ok(Host::Ipv4(_) | Host::Ipv6(_)) => true,
            Err(_) => false,
        };
        if !literal {
            return Ok(self.open.clone());
        }
        let mut kept = self.literal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outlet) = kept.get(host) {
            return Ok(outlet.clone());
        }
        let target: PrivateTarget = host.parse().map_err(|_| format!("`{host}` can't be reached"))?;
        let mut config = self.config.clone();
        config.allow_private.push(target);
        let outlet = Egress::new(&config).map_err(|error| error.to_string())?.outlet();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(host.to_owned(), outlet.clone());
        Ok(outlet)
    }
}

impl Http for Direct {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, String>> {
        Box::pin(async move {
            let outlet = self.outlet(request.uri().host().unwrap_or_default())?;
            let response = outlet.send(request).await.map_err(|error| error.to_string())?;
            Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    }
}
