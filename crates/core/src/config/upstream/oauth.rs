use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::SecretRef;

/// How the node gets access tokens for a server, at that server's authorization server. What callers present to the
/// node is never passed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OauthConfig {
    pub grant: Grant,
    /// The token endpoint.
    pub token_url: String,
    pub client_id: String,
    /// `env:NAME`, `file:/path` or `secret:name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub client_secret: Option<SecretRef>,
    /// How the client shows its secret.
    #[serde(default)]
    pub client_authentication: ClientAuthentication,
    /// What the token is to be good for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Whom the token is for (RFC 8693 `audience`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// The address the token is for (RFC 8707 `resource`); the server's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// For `token_exchange`: what stands for the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectToken>,
    /// For `authorization_code`: where the tokens of the person who signed in are kept, as `secret:name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub sign_in: Option<SecretRef>,
    /// For `authorization_code`: the node registered this client itself, and registers another one at the next sign-in.
    /// `aegis upstream sign-in` writes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub registered: bool,
    /// For `token_exchange`: a token that stands for the node, which acts for the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub actor_token: Option<SecretRef>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// The node as itself (RFC 6749 §4.4).
    ClientCredentials,
    /// The node for a caller (RFC 8693); needs `identity: per_principal`.
    TokenExchange,
    /// The node for the person who signed in with `aegis upstream sign-in`, whoever calls (RFC 6749 §4.1 with PKCE).
    AuthorizationCode,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthentication {
    /// In the header `Authorization: Basic`.
    #[default]
    Basic,
    /// In the form, as `client_id` and `client_secret`.
    Post,
}

/// What stands for the caller when a token is exchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubjectToken {
    /// A short-lived JWT that the node signs: `sub` is the user, `tenant` the tenant, `aud` the token endpoint. Its
    /// keys are at `/.well-known/jwks.json`.
    Signed {
        /// Its `iss`; `spec.seal.issuer` when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        issuer: Option<String>,
    },
    /// A token that is kept for each caller, such as `secret:tokens/{user}`.
    Stored {
        #[schemars(with = "String")]
        token: SecretRef,
        /// `urn:ietf:params:oauth:token-type:access_token` when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token_type: Option<String>,
    },
}

impl OauthConfig {
    pub fn references(&self) -> impl Iterator<Item = &SecretRef> {
        let subject = match &self.subject {
            Some(SubjectToken::Stored { token, .. }) => Some(token),
            Some(SubjectToken::Signed { .. }) | None => None,
        };
        self.client_secret.iter().chain(&self.actor_token).chain(&self.sign_in).chain(subject)
    }
}
