//! Credentials for S3: the standard chain of environment, profile files, single sign-on, web identity, process, container and
//! instance, with variables from an [`Environment`] instead of the process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use reqsign_aws_core::{
    AssumeRoleWithWebIdentityCredentialProvider, Credential, ECSCredentialProvider, EnvCredentialProvider,
    IMDSv2CredentialProvider, ProcessCredentialProvider, ProfileCredentialProvider, SSOCredentialProvider,
};
use reqsign_core::time::Timestamp;
use reqsign_core::{
    CommandExecute, CommandOutput, Context, Error, FileRead, HttpSend, ProvideCredentialDyn, SigningCredential,
    StaticEnv,
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

/// Where credentials come from, in the order in which the sources are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Environment,
    Profile,
    SingleSignOn,
    WebIdentity,
    Process,
    Container,
    Instance,
}

impl Source {
    /// Whether it gives new credentials when the last ones expire.
    pub(crate) const fn renews(self) -> bool {
        !matches!(self, Self::Environment | Self::Profile)
    }

    /// The source as a person knows it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Environment => "the environment (AWS_ACCESS_KEY_ID)",
            Self::Profile => "a profile's keys",
            Self::SingleSignOn => "single sign-on",
            Self::WebIdentity => "web identity",
            Self::Process => "a profile's credential_process",
            Self::Container => "the container",
            Self::Instance => "the instance",
        }
    }
}

/// What is known of credentials, but not they themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) source: Source,
    /// Whether they end at some time, known or not.
    pub(crate) temporary: bool,
    pub(crate) expires: Option<SystemTime>,
}

/// Credentials as a source gave them, and as the store's client takes them.
#[derive(Debug)]
struct Known {
    given: Credential,
    taken: Arc<AwsCredential>,
    source: Source,
}

/// The chain of sources, with the credentials it gave last. They are fetched anew before they expire, and when a store refuses them.
#[derive(Debug)]
pub(crate) struct Credentials {
    context: Context,
    chain: Vec<(Source, Provider)>,
    last: Mutex<Option<Known>>,
}

type Provider = Box<dyn ProvideCredentialDyn<Credential = Credential>>;

impl Credentials {
    pub(crate) fn new(environment: &Environment) -> Self {
        let envs: HashMap<String, String> =
            environment.with_prefix("").map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let home_dir = envs.get("HOME").map(Into::into);
        let services = reqwest::Client::builder().connect_timeout(SERVICE).timeout(5 * SERVICE).build();
        let context =
            Context::new().with_env(StaticEnv { home_dir, envs }).with_file_read(Files).with_command_execute(Programs);
        let context = match services {
            Ok(client) => context.with_http_send(Services(client)),
            Err(_) => context,
        };
        Self { context, chain: chain(), last: Mutex::default() }
    }

    /// Has the next request fetch credentials anew.
    pub(crate) fn forget(&self) {
        // Whoever holds the lock is fetching them.
        if let Ok(mut last) = self.last.try_lock() {
            *last = None;
        }
    }

    /// What is known of the credentials that a request would get now.
    pub(crate) async fn origin(&self) -> Result<Origin, NoCredentials> {
        let mut last = self.last.lock().await;
        let known = self.known(&mut last).await?;
        let expires = known.given.expires_in.map(Timestamp::as_system_time);
        Ok(Origin { source: known.source, temporary: known.given.session_token.is_some(), expires })
    }

    /// The last credentials while they hold, or else those of the first source that has some.
    async fn known<'a>(&self, last: &'a mut Option<Known>) -> Result<&'a Known, NoCredentials> {
        if last.as_ref().is_none_or(|known| !known.given.is_valid()) {
            *last = Some(self.fetch().await.ok_or(NoCredentials)?);
        }
        last.as_ref().ok_or(NoCredentials)
    }

    async fn fetch(&self) -> Option<Known> {
        for (source, provider) in &self.chain {
            match provider.provide_credential_dyn(&self.context).await {
                Ok(None) => {}
                Ok(Some(given)) => {
                    let taken = Arc::new(AwsCredential {
                        key_id: given.access_key_id.clone(),
                        secret_key: given.secret_access_key.clone(),
                        token: given.session_token.clone(),
                    });
                    return Some(Known { given, taken, source: *source });
                }
                Err(error) => tracing::warn!("{} gave no credentials: {error}", source.name()),
            }
        }
        None
    }
}

/// The sources in their standard order.
fn chain() -> Vec<(Source, Provider)> {
    vec![
        (Source::Environment, Box::new(EnvCredentialProvider::new())),
        (Source::Profile, Box::new(ProfileCredentialProvider::default())),
        (Source::SingleSignOn, Box::new(SSOCredentialProvider::default())),
        (Source::WebIdentity, Box::new(AssumeRoleWithWebIdentityCredentialProvider::default())),
        (Source::Process, Box::new(ProcessCredentialProvider::default())),
        (Source::Container, Box::new(ECSCredentialProvider::default())),
        (Source::Instance, Box::new(IMDSv2CredentialProvider::default())),
    ]
}

#[async_trait::async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut last = self.last.lock().await;
        let known = self.known(&mut last).await;
        known
            .map(|known| Arc::clone(&known.taken))
            .map_err(|none| object_store::Error::Generic { store: "S3", source: Box::new(none) })
    }
}

#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> Result<Vec<u8>, Error> {
        tokio::fs::read(path).await.map_err(|error| Error::unexpected(format!("{path} cannot be read: {error}")))
    }
}

#[derive(Debug)]
struct Services(reqwest::Client);

impl HttpSend for Services {
    async fn http_send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, Error> {
        // What was asked and what was answered may hold secrets, so no error repeats it.
        let failed = |_: reqwest::Error| Error::unexpected("a service that gives credentials did not answer");
        let (parts, body) = request.into_parts();
        let mut asked = self.0.request(parts.method, parts.uri.to_string()).headers(parts.headers);
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn origin(variables: &[(&str, &str)]) -> Origin {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Credentials::new(&Environment::new(variables)).origin().await.unwrap()
    }

    #[tokio::test]
    async fn credentials_say_where_they_come_from_and_when_they_end() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        let answer = r#"{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "SessionToken": "c", "Expiration": "2040-01-01T00:00:00Z"}"#;
        let text = format!(
            "[profile keys]\naws_access_key_id = a\naws_secret_access_key = b\n[profile process]\ncredential_process = cat {}\n",
            folder.path().join("answer.json").display()
        );
        std::fs::write(folder.path().join("answer.json"), answer).unwrap();
        std::fs::write(&config, text).unwrap();
        let config = config.to_str().unwrap();
        let given = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_SESSION_TOKEN", "c")];
        let token = Origin { source: Source::Environment, temporary: true, expires: None };
        assert_eq!(origin(&given).await, token);
        assert_eq!(origin(&given[..2]).await, Origin { temporary: false, ..token });
        let profile = |name| [("AWS_CONFIG_FILE", config), ("AWS_PROFILE", name)];
        assert_eq!(origin(&profile("keys")).await, Origin { source: Source::Profile, temporary: false, expires: None });
        let process = origin(&profile("process")).await;
        assert_eq!((process.source, process.temporary), (Source::Process, true));
        let expires = process.expires.unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(expires.as_secs(), 2_208_988_800);
        assert!(process.source.renews() && !token.source.renews());
    }
}
