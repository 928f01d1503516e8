//! The operator's own token.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use aegis_core::{
    Secret, Timestamp,
    caller::Tier,
    config::security_context::OPERATOR_CONTEXT,
    id::{ContextName, TenantId, UserId},
};

use super::{Inner, NewToken, RegistryError, Token, token::TokenHash};
use crate::data_dir::DataDirError;

#[derive(Debug)]
pub struct OperatorToken {
    pub token: Token,
    pub secret: Secret,
    /// Made just now, rather than found.
    pub is_new: bool,
}

pub(super) fn ensure(inner: &Inner, tenant: &TenantId) -> Result<OperatorToken, RegistryError> {
    let path = inner.data.operator_token();
    let mut store = inner.store();
    let present = store.operator_token()?;
    if let Some(text) = read(&path)?
        && let Some(hash) = TokenHash::of(&text)
        && let Some(token) = store.find(&hash)?
        && Some(&token.id) == present.as_ref()
        && &token.tenant == tenant
        && token.usable_at(Timestamp::now()).is_ok()
    {
        return Ok(OperatorToken { token, secret: Secret::new(text), is_new: false });
    }
    let new = NewToken {
        tenant: tenant.clone(),
        user: UserId::new("operator"),
        tier: Tier::Operator,
        context: ContextName::new(OPERATOR_CONTEXT),
        expires: None,
        note: Some("the operator's own, in operator.token".into()),
    };
    // The store first: a crash before the file is written leaves a file that does not fit, and the next start tries
    // again.
    let (token, secret) = store.replace_operator_token(&new)?;
    if let Some(present) = present {
        inner.cache().remove(&present);
        inner.seal().forget_credential(&present);
    }
    drop(store);
    inner.data.write_file(&path, format!("{}\n", secret.expose()).as_bytes(), 0o600)?;
    Ok(OperatorToken { token, secret, is_new: true })
}

/// What the file holds, if it is there and readable by its owner alone.
fn read(path: &Path) -> Result<Option<String>, RegistryError> {
    let failed = |source| DataDirError::Io { action: "read", path: path.to_owned(), source };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error).into()),
    };
    if metadata.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "the operator token could be read by others; it is private again now");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    }
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(failed(error).into()),
    }
}
