//! Signing in to a server in a browser: begun here, gone on with by a person, and ended here with tokens that are kept.
//!
//! All addresses but the server's own come from the other side. They are asked under the rules of `spec.egress`, and a
//! literal address of this machine or network only where it is the server's own host, which the operator wrote.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use aegis_core::{
    Secret,
    config::{
        McpServer, SecretRef,
        upstream::{ClientAuthentication, Grant, Identity, OauthConfig, suggested_name},
    },
    upstream::{SignInBegun, SignInWish, SignedIn, UpstreamError},
};
use aegis_mcp_client::{
    Http,
    http::Body,
    oauth::{Application, Journey, Known, SignInError},
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use tokio::time::Instant;
use url::{Host, Url};

use super::{oauth::Fresh, way::Ways};

/// Sign-ins that somebody has begun and not ended, and how long each is waited for.
const MOST_PENDING: usize = 100;
const LONGEST: Duration = Duration::from_secs(600);
/// All that is asked of the other side at one step.
const PATIENCE: Duration = Duration::from_secs(30);
const MOST_SCOPES: usize = 50;
const LONGEST_REASON: usize = 600;

type Told<T> = Result<T, String>;

/// Sign-ins that wait for a browser to come back, by their `state`.
#[derive(Debug, Default)]
pub(super) struct SignIns(Mutex<HashMap<String, Pending>>);

#[derive(Debug)]
struct Pending {
    server: String,
    url: Url,
    oauth: OauthConfig,
    /// To be stored where the configuration says the client's secret is.
    client_secret: Option<Secret>,
    journey: Journey,
    until: Instant,
}

/// What a sign-in brought.
struct Got {
    url: Url,
    oauth: OauthConfig,
    client_secret: Option<Secret>,
    fresh: Fresh,
}

impl Ways {
    pub(super) async fn begin_sign_in(
        &self,
        server: &McpServer,
        wish: &SignInWish,
        as_configured: bool,
    ) -> Result<SignInBegun, UpstreamError> {
        let begun = self.begin(server, wish, as_configured).await;
        begun.map_err(|reason| self.failed(&reason))
    }

    /// `back` is the whole address that the browser came back to.
    pub(super) async fn finish_sign_in<'a>(
        &'a self,
        server: &'a McpServer,
        back: &'a Secret,
    ) -> Result<SignedIn<'a>, UpstreamError> {
        let finished = self.finish(server, back).await;
        let tokens = finished.map_err(|reason| self.failed(&reason))?;
        let oauth = tokens.oauth.clone();
        let keep = async move { self.keep(server, &tokens).await.map_err(|reason| self.failed(&reason)) };
        Ok(SignedIn { oauth, keep: Box::pin(keep) })
    }

    /// Words of the other side may be among these.
    fn failed(&self, reason: &str) -> UpstreamError {
        let redactor = self.secrets.redactor();
        let shown = redactor.text(reason).chars().filter(|c| !c.is_control()).take(LONGEST_REASON).collect();
        UpstreamError::Failed(shown)
    }

    async fn begin(&self, server: &McpServer, wish: &SignInWish, as_configured: bool) -> Told<SignInBegun> {
        let url = server.url.as_deref().ok_or("a program has no sign-in: give it `credentials`")?;
        let url = Url::parse(url).map_err(|error| format!("`{url}` is no address: {error}"))?;
        if server.identity == Identity::PerPrincipal {
            return Err("its callers have credentials of their own (`identity: per_principal`)".to_owned());
        }
        let given = wish.client_secret.as_deref().map(SecretRef::parse);
        if let Some(SecretRef::Literal(_)) = given {
            return Err("the client's secret is named by env:NAME, file:/path or secret:name".to_owned());
        }
        let said = server.oauth.as_ref().filter(|oauth| oauth.grant == Grant::AuthorizationCode);
        // One that the node registered itself was registered with another port to come back to, and is perhaps forgotten.
        let is_asked_for = |oauth: &&OauthConfig| wish.client_id.is_none() && !oauth.registered;
        let own = said.filter(|oauth| as_configured || is_asked_for(oauth));
        let mut reference = match own {
            Some(own) if as_configured => own.client_secret.clone(),
            Some(own) => given.clone().or_else(|| own.client_secret.clone()),
            None => given.clone(),
        };
        let mut application = Application {
            name: self.node.clone(),
            redirect: loopback(&wish.redirect)?,
            document: None,
            known: match own.map(|own| &own.client_id).or(wish.client_id.as_ref()) {
                Some(id) => Some(self.known(id, reference.as_ref()).await?),
                None => None,
            },
        };
        let scopes = match (&*wish.scopes, said) {
            ([], Some(said)) => &*said.scopes,
            (given, _) => given,
        };
        let guarded = Guarded { http: &*self.http, server: &url };
        let mut journey = patient(Journey::begin(&guarded, &url, &application, scopes)).await?;
        if let Some(own) = own.filter(|own| own.token_url != journey.token_endpoint()) {
            if as_configured {
                return Err(format!(
                    "its token endpoint is {}, and the configuration says {}",
                    journey.token_endpoint(),
                    own.token_url
                ));
            }
            // Another authority does not know this client, and is not shown its secret.
            (application.known, reference) = (None, given);
            journey = patient(Journey::begin(&guarded, &url, &application, scopes)).await?;
        }
        // The person's browser is sent there.
        checked(&url, journey.page().as_str())?;
        checked(&url, journey.token_endpoint())?;
        let is_new = application.known.is_none();
        let oauth = match own.filter(|_| as_configured) {
            Some(configured) => configured.clone(),
            None => OauthConfig { registered: is_new, ..entry(server, &url, &journey, reference) },
        };
        // One that was known before is where it was.
        let client_secret = journey.client_secret().filter(|_| is_new).map(Secret::new);
        // From here on, also in what the other side says.
        client_secret.iter().for_each(|secret| self.secrets.remember(secret));
        let begun = SignInBegun {
            url: journey.page().to_string(),
            state: journey.state().to_owned(),
            issuer: journey.issuer().to_owned(),
        };
        let until = Instant::now() + LONGEST;
        let server = server.name.clone();
        self.sign_ins.add(Pending { server, url, oauth, client_secret, journey, until })?;
        Ok(begun)
    }

    async fn known(&self, id: &str, reference: Option<&SecretRef>) -> Told<Known> {
        let secret = match reference {
            Some(reference) => {
                let resolved = self.secrets.resolve(reference, None).await;
                Some(resolved.map_err(|error| error.to_string())?.secret.expose().to_owned())
            }
            None => None,
        };
        Ok(Known { client_id: id.to_owned(), secret, issuer: None })
    }

    async fn finish(&self, server: &McpServer, back: &Secret) -> Told<Got> {
        let back = Url::parse(back.expose()).map_err(|_| "what came back is no address")?;
        let state = back.query_pairs().find(|(name, _)| name == "state").map(|(_, state)| state.into_owned());
        // Tokens for one address must not end up at another that has its name by now.
        let url = server.url.as_deref().and_then(|url| Url::parse(url).ok());
        let is_same = |pending: &Pending| pending.server == server.name && url.as_ref() == Some(&pending.url);
        let pending = state.and_then(|state| self.sign_ins.take(&state, is_same));
        let pending = pending.ok_or("no such sign-in was begun, or it took too long: begin anew")?;
        let guarded = Guarded { http: &*self.http, server: &pending.url };
        let fresh = Fresh::from(patient(pending.journey.end(&guarded, &back)).await?);
        let Pending { url, oauth, client_secret, .. } = pending;
        Ok(Got { url, oauth, client_secret, fresh })
    }

    async fn keep(&self, server: &McpServer, got: &Got) -> Told<()> {
        if let (Some(reference), Some(secret)) = (&got.oauth.client_secret, &got.client_secret) {
            self.secrets.keep(reference, secret).await.map_err(|error| error.to_string())?;
        }
        if let Some(place) = &got.oauth.sign_in {
            let kept = self.tokens.keep(place, &got.url, &got.fresh).await;
            kept.map_err(|error| error.to_string())?;
        }
        self.tokens.forget(&server.name);
        Ok(())
    }
}

/// What the entry of a server says once somebody has signed in.
fn entry(server: &McpServer, url: &Url, journey: &Journey, given: Option<SecretRef>) -> OauthConfig {
    let stored = |purpose| SecretRef::Stored(suggested_name(&server.name, purpose));
    let place = server.oauth.as_ref().and_then(|oauth| oauth.sign_in.clone());
    OauthConfig {
        grant: Grant::AuthorizationCode,
        token_url: journey.token_endpoint().to_owned(),
        client_id: journey.client_id().to_owned(),
        client_secret: given.or_else(|| journey.client_secret().map(|_| stored("client-secret"))),
        client_authentication: if journey.shows_secret_in_form() {
            ClientAuthentication::Post
        } else {
            ClientAuthentication::Basic
        },
        scopes: journey.scopes().iter().take(MOST_SCOPES).cloned().collect(),
        audience: None,
        resource: Some(journey.resource()).filter(|named| *named != url.as_str()).map(str::to_owned),
        sign_in: Some(place.unwrap_or_else(|| stored("sign-in"))),
        registered: false,
        subject: None,
        actor_token: None,
    }
}

async fn patient<T>(asking: impl Future<Output = Result<T, SignInError>>) -> Told<T> {
    let asked = tokio::time::timeout(PATIENCE, asking).await;
    let asked =
        asked.map_err(|_| format!("the other side did not answer within {} s", PATIENCE.as_secs()))?;
    asked.map_err(|error| match error {
        SignInError::Unregistered => format!("{error}: --client-id"),
        error => error.to_string(),
    })
}

impl SignIns {
    fn add(&self, pending: Pending) -> Told<()> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, one| one.until > Instant::now());
        if all.len() >= MOST_PENDING {
            return Err(format!("{MOST_PENDING} sign-ins wait for a browser already"));
        }
        all.insert(pending.journey.state().to_owned(), pending);
        Ok(())
    }

    /// One that is not meant stays where it is.
    fn take(&self, state: &str, is_meant: impl Fn(&Pending) -> bool) -> Option<Pending> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, one| one.until > Instant::now());
        all.get(state).filter(|found| is_meant(found))?;
        all.remove(state)
    }
}

/// Asks nobody whom the server has no business to name.
struct Guarded<'a> {
    http: &'a dyn Http,
    server: &'a Url,
}

impl Http for Guarded<'_> {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, String>> {
        Box::pin(async move {
            checked(self.server, &request.uri().to_string())?;
            self.http.send(request).await
        })
    }
}

/// Codes go to this machine only (RFC 8252).
fn loopback(redirect: &str) -> Told<Url> {
    let is_loopback = |url: &Url| {
        url.scheme() == "http"
            && match url.host() {
                Some(Host::Ipv4(address)) => address.is_loopback(),
                Some(Host::Ipv6(address)) => address.is_loopback(),
                _ => false,
            }
    };
    let url = Url::parse(redirect).ok().filter(is_loopback);
    url.ok_or_else(|| format!("`{redirect}` is no address of the loopback"))
}

/// An address that the other side named: encrypted and by name, or of the very host that the operator wrote.
fn checked(server: &Url, named: &str) -> Told<()> {
    let url = Url::parse(named).map_err(|error| format!("`{named}` is no address: {error}"))?;
    let is_own = url.host() == server.host() && (url.scheme() == "https" || url.scheme() == server.scheme());
    let is_here = |name: &str| name == "localhost" || name.ends_with(".localhost");
    let is_name = matches!(url.host(), Some(Host::Domain(name)) if !is_here(name));
    if is_own || (url.scheme() == "https" && is_name) {
        return Ok(());
    }
    Err(format!(
        "{named} is neither https:// by name nor of the server's own host, so nothing is asked there"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_others_lead_nowhere_near() {
        let server = Url::parse("https://mcp.example.org/mcp").unwrap();
        for good in ["https://login.example.net/x", "https://mcp.example.org:8443/"] {
            assert_eq!(checked(&server, good), Ok(()));
        }
        for bad in [
            "http://login.example.net/",
            "https://127.0.0.1/",
            "https://169.254.169.254/latest",
            "https://[::1]/",
            "https://localhost/",
            "http://mcp.example.org/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "notaurl",
        ] {
            assert!(checked(&server, bad).is_err(), "{bad}");
        }
        let local = Url::parse("http://127.0.0.1:9000/mcp").unwrap();
        assert_eq!(checked(&local, "http://127.0.0.1:9001/token"), Ok(()));
        assert!(checked(&local, "http://127.0.0.2/token").is_err());
    }

    #[test]
    fn codes_come_back_to_this_machine() {
        assert!(loopback("http://127.0.0.1:4000/callback").is_ok() && loopback("http://[::1]:1/").is_ok());
        for bad in
            ["https://127.0.0.1/", "http://example.org/", "http://localhost:1/", "http://10.0.0.1/", ""]
        {
            assert!(loopback(bad).is_err(), "{bad}");
        }
    }
}
