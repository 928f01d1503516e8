//! Where secrets come from, as those who need one see it.

use std::{future::Future, pin::Pin, sync::Arc};

use super::{Redactor, Secret};
use crate::{
    Timestamp,
    caller::Caller,
    config::SecretRef,
    id::{TenantId, UserId},
};

/// On whose behalf a secret is wanted, where that makes a difference.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal {
    pub tenant: TenantId,
    pub user: UserId,
}

impl From<&Caller> for Principal {
    fn from(caller: &Caller) -> Self {
        Self { tenant: caller.tenant.clone(), user: caller.user.clone() }
    }
}

/// A secret as it is now.
#[derive(Debug, Clone)]
pub struct Resolved {
    pub secret: Secret,
    /// When it has to be asked for again. Without one it is good until somebody changes it.
    pub expires: Option<Timestamp>,
}

/// Messages name the reference, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("the environment has no variable `{0}`: set it where the node is started")]
    NoVariable(String),
    #[error("the file `{path}` can't be read: {reason}")]
    NoFile { path: String, reason: String },
    #[error("there is no secret `{0}`: store it with `aegis secret set {0}`")]
    NotStored(String),
    #[error(
        "`{0}` differs from caller to caller, and nobody calls: set `identity: per_principal` for the server"
    )]
    NoPrincipal(String),
    #[error(
        "the user `{0}` can't be part of a secret's name: use letters, digits, `.`, `_`, `-`, `@` and `+`"
    )]
    UnusableName(String),
    #[error("`{0}` is empty")]
    Empty(String),
    #[error("`{reference}` can't be had: {reason}")]
    Unavailable { reference: String, reason: String },
}

pub trait SecretSource: Send + Sync {
    /// The secret as it is now: asking again after a change gives the new one.
    fn resolve<'a>(
        &'a self,
        reference: &'a SecretRef,
        principal: Option<&'a Principal>,
    ) -> Pin<Box<dyn Future<Output = Result<Resolved, SecretError>> + Send + 'a>>;

    /// Puts a value where `reference` leads, which must be the secret store, in the place of what is there.
    fn keep<'a>(
        &'a self,
        reference: &'a SecretRef,
        secret: &'a Secret,
    ) -> Pin<Box<dyn Future<Output = Result<(), SecretError>> + Send + 'a>>;

    /// As [`SecretSource::keep`], but only in the place of `before`: `false` when something else is there by now, or
    /// nothing.
    fn replace<'a>(
        &'a self,
        reference: &'a SecretRef,
        before: &'a Secret,
        secret: &'a Secret,
    ) -> Pin<Box<dyn Future<Output = Result<bool, SecretError>> + Send + 'a>>;

    /// Changes whenever a stored secret does: what was resolved under the same number need not be asked for again.
    fn generation(&self) -> u64;

    /// Counts a value that did not come from here, such as an access token, among what nobody may read.
    fn remember(&self, secret: &Secret);

    /// Takes out of texts every value that was given out.
    fn redactor(&self) -> Arc<Redactor>;
}

/// Signs short-lived tokens that stand for a caller towards others. What the caller presented here is no part of them.
pub trait SubjectTokens: Send + Sync {
    /// `issuer` is the node's own when left out.
    fn sign<'a>(
        &'a self,
        principal: &'a Principal,
        audience: &'a str,
        issuer: Option<&'a str>,
    ) -> Pin<Box<dyn Future<Output = Result<Secret, SecretError>> + Send + 'a>>;
}
