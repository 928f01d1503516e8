use std::fmt;

use aegis_core::{
    Secret, Timestamp,
    caller::Tier,
    id::{ContextName, CredentialId, TenantId, UserId, is_dns_label},
};
use serde::Serialize;

use super::{RegistryError, mint};

/// How every token begins, so that people and scanners know one when they see it.
const PREFIX: &str = "aegis_";

/// What an operator decides about a new token. Nothing of it can be chosen by its bearer.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub tenant: TenantId,
    pub user: UserId,
    pub tier: Tier,
    pub context: ContextName,
    pub expires: Option<Timestamp>,
    pub note: Option<String>,
}

impl NewToken {
    pub(super) fn check(&self) -> Result<(), RegistryError> {
        let invalid = |text: &str| Err(RegistryError::Invalid(text.to_owned()));
        let plain = |text: &str, most| text.len() <= most && !text.chars().any(char::is_control);
        if !is_dns_label(self.tenant.as_str()) {
            return invalid("a tenant is 1 to 63 of a-z, 0-9 and -, with no - at the ends");
        }
        if self.user.as_str().is_empty() || !plain(self.user.as_str(), 128) {
            return invalid("a user is 1 to 128 bytes of text without control characters");
        }
        if !is_dns_label(self.context.as_str()) {
            return invalid("a context is 1 to 63 of a-z, 0-9 and -, with no - at the ends");
        }
        if !self.note.as_deref().is_none_or(|note| plain(note, 256)) {
            return invalid("a note is at most 256 bytes of text without control characters");
        }
        if self.expires.is_some_and(|expires| expires <= Timestamp::now()) {
            return invalid("a token that expires in the past can't be used: give a later time");
        }
        Ok(())
    }
}

/// All that is known of a token, except the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Token {
    pub id: CredentialId,
    pub tenant: TenantId,
    pub user: UserId,
    pub tier: Tier,
    pub context: ContextName,
    pub created: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// To the hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
}

/// What has become of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenState {
    Active,
    Expired,
    Revoked,
}

impl Token {
    /// One that was revoked stays so, whether or not its time is over.
    pub fn state_at(&self, now: Timestamp) -> TokenState {
        match self.usable_at(now) {
            Ok(()) => TokenState::Active,
            Err(TokenError::Revoked { .. }) => TokenState::Revoked,
            Err(_) => TokenState::Expired,
        }
    }

    pub(super) fn usable_at(&self, now: Timestamp) -> Result<(), TokenError> {
        match (self.revoked, self.expires) {
            (Some(at), _) => Err(TokenError::Revoked { id: self.id.clone(), at }),
            (None, Some(at)) if at <= now => Err(TokenError::Expired { id: self.id.clone(), at }),
            _ => Ok(()),
        }
    }
}

/// Why a presented token does not let its bearer in.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("this node does not know the token: ask its operator for one (`aegis token create`)")]
    Unknown,
    #[error("the token `{id}` expired at {at}: ask the operator for a new one (`aegis token create`)")]
    Expired { id: CredentialId, at: Timestamp },
    #[error("the token `{id}` was revoked at {at}: ask the operator for a new one (`aegis token create`)")]
    Revoked { id: CredentialId, at: Timestamp },
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// The SHA-256 of a token. With 256 random bits in the token there is nothing to guess, so no salt and no slow hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenHash(pub(super) [u8; 32]);

impl TokenHash {
    /// None for text that can't be a token, which then costs no lookup.
    pub(super) fn of(text: &str) -> Option<Self> {
        mint::hash_of(PREFIX, text).map(Self)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// A new token and its hash.
pub(super) fn fresh_secret() -> Result<(Secret, TokenHash), RegistryError> {
    let (secret, hash) = mint::secret(PREFIX)?;
    Ok((secret, TokenHash(hash)))
}

/// The public handle of a new token. It has nothing to do with the token's own text.
pub(super) fn fresh_id() -> Result<CredentialId, RegistryError> {
    mint::handle("tok_")
}
