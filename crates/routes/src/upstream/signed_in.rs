//! Tokens of a person who signed in: kept in the secret store, and made new before they run out.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use aegis_core::{
    Secret, Timestamp,
    config::{McpServer, SecretRef, upstream::OauthConfig},
    secret::SecretError,
};
use serde::{Deserialize, Serialize};
use url::Url;

use super::oauth::{AccessTokens, Form, Fresh, OauthError};

/// What a refresh token is refused with when it is good for nothing any more (RFC 6749 §5.2).
const OVER: &str = "invalid_grant";

/// What the secret store holds of a sign-in, as JSON. Each of its parts is a secret of its own.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// Whose tokens they are. An entry may get another address and keep its name.
    origin: String,
    access_token: String,
    /// In milliseconds since 1970.
    until: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
}

impl Kept {
    fn of(origin: String, fresh: &Fresh) -> Self {
        let life = u64::try_from(fresh.life.as_millis()).unwrap_or(u64::MAX);
        Self {
            origin,
            access_token: fresh.access.expose().to_owned(),
            until: Timestamp::now().millis().saturating_add(life),
            refresh_token: fresh.refresh.as_ref().map(|token| token.expose().to_owned()),
        }
    }

    /// As it is put into the store at `place`.
    fn text(&self, place: &SecretRef) -> Result<Secret, OauthError> {
        let text = serde_json::to_string(self).map_err(|error| unavailable(place, &error))?;
        Ok(Secret::new(text))
    }

    /// The access token, while it may be used and is not the one that was refused.
    fn usable(&self, refused: Option<&Secret>) -> Option<Fresh> {
        let left = self.until.checked_sub(Timestamp::now().millis()).filter(|left| *left > 0)?;
        let access = Secret::new(self.access_token.as_str());
        let refresh = self.refresh_token.as_deref().map(Secret::new);
        (refused != Some(&access)).then_some(Fresh { access, life: Duration::from_millis(left), refresh })
    }
}

/// One turn at a time for each place in the store. As many are held as somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    fn at(&self, place: &SecretRef) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(all.entry(place.to_string()).or_default())
    }
}

impl AccessTokens {
    /// A token of whoever signed in to the server, other than the one that was `refused`.
    pub(super) async fn of_signed_in(
        self: &Arc<Self>,
        server: &McpServer,
        oauth: &OauthConfig,
        refused: Option<Secret>,
    ) -> Result<Fresh, OauthError> {
        let place = oauth.sign_in.as_ref().ok_or_else(|| nobody(server))?;
        let (_, kept) = self.kept_at(server, place).await?;
        if let Some(fresh) = kept.usable(refused.as_ref()) {
            return Ok(fresh);
        }
        // A task of its own: who waits for it may be dropped at any time, and once the old refresh token is spent the new
        // one must be kept.
        let (tokens, server, oauth, at) = (Arc::clone(self), server.clone(), oauth.clone(), place.clone());
        let renewal = tokio::spawn(async move { tokens.renew(&server, &oauth, &at, refused.as_ref()).await });
        renewal.await.unwrap_or_else(|error| Err(unavailable(place, &error)))
    }

    async fn renew(
        &self,
        server: &McpServer,
        oauth: &OauthConfig,
        place: &SecretRef,
        refused: Option<&Secret>,
    ) -> Result<Fresh, OauthError> {
        let turn = self.renewals.at(place);
        let _turn = turn.lock().await;
        // Another may have had its turn meanwhile.
        let (before, kept) = self.kept_at(server, place).await?;
        if let Some(fresh) = kept.usable(refused) {
            return Ok(fresh);
        }
        let refresh = kept.refresh_token.as_deref().map(Secret::new).ok_or_else(|| nobody(server))?;
        let mut form = Form::default();
        form.add("grant_type", "refresh_token");
        form.add("refresh_token", refresh.expose());
        let request = self.addressed(server, oauth, None, form).await?;
        match self.send(oauth, request).await {
            Ok(fresh) => {
                // One that is not replaced stays good.
                let fresh = Fresh { refresh: fresh.refresh.or(Some(refresh)), ..fresh };
                self.remember(&fresh);
                // Before anybody uses them: the old ones may be good for nothing by now.
                let text = Kept::of(kept.origin, &fresh).text(place)?;
                if self.secrets.replace(place, &before, &text).await? {
                    return Ok(fresh);
                }
            }
            Err(OauthError::Refused { reason, .. }) if reason.starts_with(OVER) => {}
            Err(error) => return Err(error),
        }
        // What is there by now is all that counts: somebody signed in meanwhile, or took the sign-in back.
        let (_, kept) = self.kept_at(server, place).await?;
        kept.usable(refused).ok_or_else(|| nobody(server))
    }

    /// What the store holds, as it is written there and as it is read.
    async fn kept_at(&self, server: &McpServer, place: &SecretRef) -> Result<(Secret, Kept), OauthError> {
        let text = match self.secrets.resolve(place, None).await {
            Ok(resolved) => resolved.secret,
            Err(SecretError::NotStored(_)) => return Err(nobody(server)),
            Err(error) => return Err(error.into()),
        };
        let kept: Kept = serde_json::from_str(text.expose()).map_err(|_| nobody(server))?;
        self.secrets.remember(&Secret::new(kept.access_token.as_str()));
        kept.refresh_token.iter().for_each(|token| self.secrets.remember(&Secret::new(token.as_str())));
        let own = server.url.as_deref().and_then(|url| Url::parse(url).ok()).map(|url| origin(&url));
        if own.as_ref() != Some(&kept.origin) {
            return Err(nobody(server));
        }
        Ok((text, kept))
    }

    /// Puts the tokens of whoever has just signed in to `server` into the secret store, whatever is there.
    pub(super) async fn keep(
        &self,
        place: &SecretRef,
        server: &Url,
        fresh: &Fresh,
    ) -> Result<(), OauthError> {
        self.remember(fresh);
        let text = Kept::of(origin(server), fresh).text(place)?;
        Ok(self.secrets.keep(place, &text).await?)
    }

    fn remember(&self, fresh: &Fresh) {
        self.secrets.remember(&fresh.access);
        fresh.refresh.iter().for_each(|token| self.secrets.remember(token));
    }
}

fn nobody(server: &McpServer) -> OauthError {
    OauthError::NotSignedIn(server.name.clone())
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn unavailable(place: &SecretRef, reason: &dyn std::fmt::Display) -> OauthError {
    SecretError::Unavailable { reference: place.to_string(), reason: reason.to_string() }.into()
}
