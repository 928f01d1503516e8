//! Which authorisation server speaks for an MCP server, and where its doors are: RFC 9728, RFC 8414 and OpenID Connect
//! Discovery. All of it is text from outside, and each step names whom the next one must turn out to be.

use serde::{Deserialize, de::DeserializeOwned};
use url::Url;

use super::{SignInError, get};
use crate::http::Http;

/// What a server says of itself as a resource.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Resource {
    pub(super) resource: String,
    #[serde(default)]
    pub(super) authorization_servers: Vec<String>,
    #[serde(default)]
    pub(super) scopes_supported: Option<Vec<String>>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Issuer {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    #[serde(default)]
    pub(super) registration_endpoint: Option<String>,
    #[serde(default)]
    pub(super) scopes_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) code_challenge_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) client_id_metadata_document_supported: bool,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// Where to sign in for a server.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// The resource's own name for itself, exactly as it writes it.
    pub(super) resource: String,
    pub(super) scopes: Option<Vec<String>>,
    pub(super) issuer: Issuer,
}

pub(super) async fn find(http: &dyn Http, server: &Url, named: Option<&str>) -> Result<Found, SignInError> {
    let Some(resource) = resource(http, server, named).await? else {
        return before_resources(http, server).await;
    };
    if !covers(&resource.resource, server) {
        return Err(SignInError::OtherResource(resource.resource.into()));
    }
    let Some(issuer) = resource.authorization_servers.first() else { return Err(SignInError::NoIssuer) };
    let issuer = self::issuer(http, issuer).await?;
    Ok(Found { resource: resource.resource, scopes: resource.scopes_supported, issuer })
}

/// The document that the challenge named, or the one at the place where it should be.
async fn resource(
    http: &dyn Http,
    server: &Url,
    named: Option<&str>,
) -> Result<Option<Resource>, SignInError> {
    if let Some(named) = named {
        let url = Url::parse(named).map_err(|_| SignInError::Endpoint(named.into()))?;
        if url.origin() != server.origin() {
            return Err(SignInError::OtherResource(named.into()));
        }
        return document(http, &url).await?.ok_or(SignInError::NoIssuer).map(Some);
    }
    const PLACE: &str = "/.well-known/oauth-protected-resource";
    let path = server.path().trim_end_matches('/');
    let mut places = vec![format!("{PLACE}{path}")];
    if !path.is_empty() {
        places.push(PLACE.to_owned());
    }
    for place in places {
        if let Some(found) = document(http, &at(server, &place)).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Whether a resource by this name is, or holds, the server: the same origin, and a path above it.
fn covers(resource: &str, server: &Url) -> bool {
    let Ok(named) = Url::parse(resource) else { return false };
    if named.origin() != server.origin() || named.fragment().is_some() || named.query().is_some() {
        return false;
    }
    let (above, below) = (named.path().trim_end_matches('/'), server.path());
    below.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The metadata of an issuer, which must call itself what it was called.
async fn issuer(http: &dyn Http, name: &str) -> Result<Issuer, SignInError> {
    let url = Url::parse(name).map_err(|_| SignInError::Endpoint(name.into()))?;
    for place in places_of(&url) {
        let Some(found) = document::<Issuer>(http, &place).await? else { continue };
        if found.issuer != name {
            return Err(SignInError::OtherIssuer { expected: name.into(), found: found.issuer.into() });
        }
        return Ok(found);
    }
    Err(SignInError::NoIssuer)
}

fn places_of(issuer: &Url) -> Vec<Url> {
    const OAUTH: &str = "/.well-known/oauth-authorization-server";
    const OPENID: &str = "/.well-known/openid-configuration";
    let path = issuer.path().trim_end_matches('/');
    let mut places = vec![at(issuer, &format!("{OAUTH}{path}")), at(issuer, &format!("{OPENID}{path}"))];
    if !path.is_empty() {
        places.push(at(issuer, &format!("{path}{OPENID}")));
    }
    places
}

/// As it was before servers described themselves (2025-03-26): the server's own origin issues, at fixed places when it
/// says nothing.
async fn before_resources(http: &dyn Http, server: &Url) -> Result<Found, SignInError> {
    let origin = server.origin().ascii_serialization();
    let issuer = match issuer(http, &origin).await {
        Ok(issuer) => issuer,
        Err(SignInError::NoIssuer) => Issuer {
            authorization_endpoint: format!("{origin}/authorize"),
            token_endpoint: format!("{origin}/token"),
            registration_endpoint: Some(format!("{origin}/register")),
            issuer: origin,
            scopes_supported: None,
            code_challenge_methods_supported: Some(vec!["S256".to_owned()]),
            token_endpoint_auth_methods_supported: None,
            client_id_metadata_document_supported: false,
            authorization_response_iss_parameter_supported: false,
        },
        Err(error) => return Err(error),
    };
    let mut resource = server.clone();
    resource.set_fragment(None);
    Ok(Found { resource: resource.into(), scopes: None, issuer })
}

fn at(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.set_path(path);
    url
}

/// `None` where there is nothing; what is there and can't be read is an error.
async fn document<T: DeserializeOwned>(http: &dyn Http, url: &Url) -> Result<Option<T>, SignInError> {
    let Some(bytes) = get(http, url).await? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| SignInError::Unreadable {
        at: url.as_str().into(),
        reason: error.to_string().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_resource_covers_what_is_below_it() {
        let server = url("https://host:8443/a/mcp");
        for named in
            ["https://host:8443/a/mcp", "https://host:8443/a", "https://host:8443", "https://host:8443/a/"]
        {
            assert!(covers(named, &server), "{named}");
        }
        for named in [
            "https://evil/a/mcp",
            "https://host/a/mcp",
            "http://host:8443/a",
            "https://host:8443/a/m",
            "a",
            "https://host:8443/a#x",
        ] {
            assert!(!covers(named, &server), "{named}");
        }
    }

    #[test]
    fn metadata_is_looked_for_where_the_issuer_is() {
        let places = |issuer| places_of(&url(issuer)).into_iter().map(String::from).collect::<Vec<_>>();
        assert_eq!(
            places("https://as/t1"),
            [
                "https://as/.well-known/oauth-authorization-server/t1",
                "https://as/.well-known/openid-configuration/t1",
                "https://as/t1/.well-known/openid-configuration",
            ]
        );
        assert_eq!(places("https://as").len(), 2);
    }
}
