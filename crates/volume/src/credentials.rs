//! Credentials for S3: the standard chain of environment, profile files, single sign-on, web identity, process, container and
//! instance, with variables from an [`Environment`] instead of the process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use reqsign_aws_core::{Credential, DefaultCredentialProvider};
use reqsign_core::{
    CommandExecute, CommandOutput, Context, Error, FileRead, HttpSend, ProvideCredential, SigningCredential, StaticEnv,
};
use tokio::sync::Mutex;

use crate::Environment;

/// How long a service that gives credentials may take; on a machine without one nobody answers.
const SERVICE: Duration = Duration::from_secs(2);

/// No source had credentials.
#[derive(Debug, thiserror::Error)]
#[error(
    "no credentials were found in the environment, in profiles, or from this machine: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
     AWS_PROFILE, or use --anonymous for a public bucket"
)]
pub(crate) struct NoCredentials;

/// The chain, with the credentials it gave last. They are fetched anew before they expire, and when a store refuses them.
#[derive(Debug)]
pub(crate) struct Credentials {
    context: Context,
    chain: DefaultCredentialProvider,
    last: Mutex<Option<(Credential, Arc<AwsCredential>)>>,
}

impl Credentials {
    pub(crate) fn new(environment: &Environment) -> Self {
        let envs: HashMap<String, String> =
            environment.with_prefix("").map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let home_dir = envs.get("HOME").map(Into::into);
        let services = reqwest::Client::builder().connect_timeout(SERVICE).timeout(5 * SERVICE).build();
        let context =
            Context::new().with_env(StaticEnv { home_dir, envs }).with_file_read(Files).with_command_execute(Programs);
        let context = match services {
            Ok(client) => {
                let sts = environment.variable("AWS_ENDPOINT_URL_STS").filter(|url| !url.is_empty()).map(str::to_owned);
                context.with_http_send(Services { client, sts })
            }
            Err(_) => context,
        };
        Self { context, chain: DefaultCredentialProvider::new(), last: Mutex::default() }
    }

    /// Has the next request fetch credentials anew.
    pub(crate) fn forget(&self) {
        // Whoever holds the lock is fetching them.
        if let Ok(mut last) = self.last.try_lock() {
            *last = None;
        }
    }
}

#[async_trait::async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut last = self.last.lock().await;
        if let Some((known, credential)) = last.as_ref()
            && known.is_valid()
        {
            return Ok(Arc::clone(credential));
        }
        let found = self.chain.provide_credential(&self.context).await.ok().flatten();
        let found =
            found.ok_or_else(|| object_store::Error::Generic { store: "S3", source: Box::new(NoCredentials) })?;
        let credential = Arc::new(AwsCredential {
            key_id: found.access_key_id.clone(),
            secret_key: found.secret_access_key.clone(),
            token: found.session_token.clone(),
        });
        *last = Some((found, Arc::clone(&credential)));
        Ok(credential)
    }
}

#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> Result<Vec<u8>, Error> {
        tokio::fs::read(path).await.map_err(|error| Error::unexpected(format!("{path} cannot be read: {error}")))
    }
}

/// Services that give credentials, over HTTP.
#[derive(Debug)]
struct Services {
    client: reqwest::Client,
    /// Where the token service is, if not at its public address.
    sts: Option<String>,
}

impl Services {
    /// The URL to ask in place of the one that the chain knows.
    fn url(&self, known: &http::Uri) -> String {
        let host = known.host().unwrap_or_default();
        let is_sts = host.starts_with("sts.") && host.contains(".amazonaws.com");
        match self.sts.as_ref().filter(|_| is_sts) {
            Some(sts) => format!("{}{}", sts.trim_end_matches('/'), known.path()),
            None => known.to_string(),
        }
    }
}

impl HttpSend for Services {
    async fn http_send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, Error> {
        // What was asked and what was answered may hold secrets, so no error repeats it.
        let failed = |_: reqwest::Error| Error::unexpected("a service that gives credentials did not answer");
        let (parts, body) = request.into_parts();
        let mut asked = self.client.request(parts.method, self.url(&parts.uri)).headers(parts.headers);
        if !body.is_empty() {
            asked = asked.body(body);
        }
        let answer = asked.send().await.map_err(failed)?;
        let mut built = http::Response::new(Bytes::new());
        (*built.status_mut(), *built.headers_mut()) = (answer.status(), answer.headers().clone());
        *built.body_mut() = answer.bytes().await.map_err(failed)?;
        Ok(built)
    }
}

#[derive(Debug)]
struct Programs;

impl CommandExecute for Programs {
    async fn command_execute<'a>(&'a self, program: &'a str, args: &'a [&'a str]) -> Result<CommandOutput, Error> {
        let mut command = std::process::Command::new(program);
        command.args(args);
        let output = tokio::task::spawn_blocking(move || command.output()).await;
        let failed = |error: std::io::Error| Error::unexpected(format!("{program} cannot be run: {error}"));
        let output = output.map_err(|error| failed(error.into()))?.map_err(failed)?;
        let status = output.status.code().unwrap_or(-1);
        Ok(CommandOutput { status, stdout: output.stdout, stderr: output.stderr })
    }
}
