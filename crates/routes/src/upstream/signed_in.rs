//! Tokens of a person who signed in: kept in the secret store, and made new before they run out.

use std::time::Duration;

use aegis_core::{
    Secret, Timestamp,
    config::{McpServer, SecretRef, upstream::OauthConfig},
    secret::SecretError,
};
use serde::{Deserialize, Serialize};

use super::oauth::{AccessTokens, Form, Fresh, OauthError};

/// What a refresh token is refused with when it is good for nothing any more (RFC 6749 §5.2).
const OVER: &str = "invalid_grant";

/// What the secret store holds of a sign-in, as JSON. Each of its parts is a secret of its own.
#[derive(Serialize, Deserialize)]
struct Kept {
    access_token: String,
    /// In milliseconds since 1970.
    until: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
}

impl Kept {
    /// How long the access token may still be used.
    fn left(&self) -> Option<Duration> {
        let left = self.until.checked_sub(Timestamp::now().millis())?;
        (left > 0).then(|| Duration::from_millis(left))
    }
}

impl AccessTokens {
    /// A token of whoever signed in to the server. `anew` says that the last one was not taken.
    pub(super) async fn of_signed_in(
        &self,
        server: &McpServer,
        oauth: &OauthConfig,
        anew: bool,
    ) -> Result<Fresh, OauthError> {
        let nobody = || OauthError::NotSignedIn(server.name.clone());
        let place = oauth.sign_in.as_ref().ok_or_else(nobody)?;
        let kept = match self.secrets.resolve(place, None).await {
            Ok(resolved) => resolved.secret,
            Err(SecretError::NotStored(_)) => return Err(nobody()),
            Err(error) => return Err(error.into()),
        };
        let kept: Kept = serde_json::from_str(kept.expose()).map_err(|_| nobody())?;
        let refresh = kept.refresh_token.as_deref().map(Secret::new);
        refresh.iter().for_each(|token| self.secrets.remember(token));
        if let Some(life) = kept.left().filter(|_| !anew) {
            return Ok(Fresh { access: Secret::new(kept.access_token), life, refresh });
        }
        let refresh = refresh.ok_or_else(nobody)?;
        let mut form = Form::default();
        form.add("grant_type", "refresh_token");
        form.add("refresh_token", refresh.expose());
        let request = self.addressed(server, oauth, None, form).await?;
        match self.send(oauth, request).await {
            Ok(fresh) => {
                // One that is not replaced stays good.
                let fresh = Fresh { refresh: fresh.refresh.or(Some(refresh)), ..fresh };
                self.keep(place, &fresh).await?;
                Ok(fresh)
            }
            Err(OauthError::Refused { reason, .. }) if reason.starts_with(OVER) => Err(nobody()),
            Err(error) => Err(error),
        }
    }

    /// Puts tokens into the secret store, before anybody uses them: the old ones may be good for nothing by now.
    pub(super) async fn keep(&self, place: &SecretRef, fresh: &Fresh) -> Result<(), OauthError> {
        self.secrets.remember(&fresh.access);
        fresh.refresh.iter().for_each(|token| self.secrets.remember(token));
        let life = u64::try_from(fresh.life.as_millis()).unwrap_or(u64::MAX);
        let kept = Kept {
            access_token: fresh.access.expose().to_owned(),
            until: Timestamp::now().millis().saturating_add(life),
            refresh_token: fresh.refresh.as_ref().map(|token| token.expose().to_owned()),
        };
        let text = serde_json::to_string(&kept).map_err(|error| SecretError::Unavailable {
            reference: place.to_string(),
            reason: error.to_string(),
        })?;
        Ok(self.secrets.keep(place, &Secret::new(text)).await?)
    }
}
