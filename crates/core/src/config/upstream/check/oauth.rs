//! What the shape of `oauth` can't hold: which grant needs what, and whose tokens they are.

use super::{
    super::{Grant, Identity, OauthConfig, SubjectToken},
    One, suggested_name,
};
use crate::config::SecretRef;

impl One<'_> {
    pub(super) fn oauth(&mut self) {
        let Some(oauth) = &self.server.oauth else { return };
        if self.server.credentials.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            self.wrong(&["oauth"], "`credentials` set Authorization too: leave one out");
        }
        let is_local = oauth.token_url.strip_prefix("http://").is_some_and(is_loopback);
        if !oauth.token_url.starts_with("https://") && !is_local {
            self.wrong(
                &["oauth", "token_url"],
                "write an address that starts with https://; http:// only on loopback",
            );
        }
        let members = [("client_secret", &oauth.client_secret), ("actor_token", &oauth.actor_token)];
        for (member, reference) in members {
            if let Some(reference) = reference {
                self.reference(&["oauth", member], reference, member);
            }
        }
        if let Some(SubjectToken::Stored { token, .. }) = &oauth.subject {
            self.reference(&["oauth", "subject", "stored", "token"], token, "subject-token");
            if !token.is_per_principal() {
                self.wrong(
                    &["oauth", "subject", "stored", "token"],
                    "it stands for the caller, so it needs {user} in it: secret:tokens/{user}",
                );
            }
        }
        for (member, given) in [("sign_in", oauth.sign_in.is_some()), ("registered", oauth.registered)] {
            if given && oauth.grant != Grant::AuthorizationCode {
                self.wrong(&["oauth", member], "this is for `grant: authorization_code`");
            }
        }
        match oauth.grant {
            Grant::AuthorizationCode => self.signed_in(oauth),
            Grant::TokenExchange => {
                if oauth.subject.is_none() {
                    self.wrong(
                        &["oauth"],
                        "say what stands for the caller: `subject: {signed: {}}` or `subject: {stored: {token: …}}`",
                    );
                }
                if self.server.identity == Identity::Shared {
                    self.wrong(
                        &["oauth", "grant"],
                        "tokens are exchanged for a caller: set `identity: per_principal`",
                    );
                }
            }
            Grant::ClientCredentials => {
                if oauth.client_secret.is_none() {
                    self.wrong(&["oauth"], "`client_credentials` need a `client_secret`");
                }
                for (member, given) in
                    [("subject", oauth.subject.is_some()), ("actor_token", oauth.actor_token.is_some())]
                {
                    if given {
                        self.wrong(&["oauth", member], "this is for `grant: token_exchange`");
                    }
                }
            }
        }
    }

    fn signed_in(&mut self, oauth: &OauthConfig) {
        match &oauth.sign_in {
            Some(SecretRef::Stored(_)) => {}
            _ => self.wrong(
                &["oauth"],
                format!(
                    "say where the tokens are kept: `sign_in: \"secret:{}\"`, which `aegis upstream sign-in` fills",
                    suggested_name(&self.server.name, "sign-in")
                ),
            ),
        }
        if let Some(reference) = &oauth.sign_in {
            self.reference(&["oauth", "sign_in"], reference, "sign-in");
        }
        if self.server.identity == Identity::PerPrincipal {
            self.wrong(&["oauth", "grant"], "one person signs in for all callers: leave `identity` out");
        }
        for (member, given) in
            [("subject", oauth.subject.is_some()), ("actor_token", oauth.actor_token.is_some())]
        {
            if given {
                self.wrong(&["oauth", member], "this is for `grant: token_exchange`");
            }
        }
    }
}

fn is_loopback(rest: &str) -> bool {
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    matches!(host, "127.0.0.1" | "localhost" | "[::1]")
}
