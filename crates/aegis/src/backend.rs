//! Whom a command asks: the running node, or one of its own when none runs. Both answer the same requests.

use aegis_core::Secret;
use hyper::{Method, StatusCode};
use serde_json::Value;

use crate::{
    cli::{Acting, Global},
    client::{self, Answer, Client},
    locate,
    node::Node,
};

#[derive(Debug)]
pub enum Backend {
    Running(Client),
    Own { node: Box<Node>, token: Secret },
}

impl Backend {
    /// Acts as the operator.
    pub async fn open(global: &Global) -> anyhow::Result<Self> {
        let data = locate::data_dir(global)?;
        if let Some(running) = locate::running(&data) {
            return Ok(Self::Running(locate::client(&data, &running, &Acting::default())?));
        }
        let file = locate::config_file(global)?;
        let config = locate::read_config(file.as_deref())?;
        let node = Node::open(&data, file, config).await?;
        locate::tell_alone(global, &data);
        let token = locate::operator_token(&data)?;
        Ok(Self::Own { node: Box::new(node), token })
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.ask(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// As [`Backend::post`], for work that may take its time.
    pub async fn patient_post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        match self {
            Self::Running(client) => client.patient_post(path, body).await,
            Self::Own { .. } => self.post(path, body).await,
        }
    }

    /// As [`Backend::put`], for work that may take its time.
    pub async fn patient_put(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        match self {
            Self::Running(client) => client.patient_put(path, body).await,
            Self::Own { .. } => self.put(path, body).await,
        }
    }

    pub async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.ask(Method::PUT, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.ask(Method::DELETE, path, None).await
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        match self {
            Self::Running(client) => client.ask(method, path, body).await,
            Self::Own { node, token } => {
                let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
                let (status, text) =
                    aegis_doors::inside::answer(&node.doors, method, path, token, body).await?;
                client::read(StatusCode::from_u16(status)?, &text)
            }
        }
    }

    pub async fn close(self) {
        if let Self::Own { node, .. } = self {
            node.close().await;
        }
    }
}
