//! etcd and kube-apiserver as processes of this machine, from the directory that controller-runtime's envtest and the
//! Kubernetes tests take them from (`KUBEBUILDER_ASSETS`).

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use plimsoll_apiserver::http::tls::Credentials;
use plimsoll_apiserver::private;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use super::process::{Usage, usage};

/// Longest wait for an answer after the start.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running etcd and kube-apiserver; they end with this, and their directory goes.
pub struct Upstream {
    children: Vec<Child>,
    dir: PathBuf,
    /// How an administrator gets in.
    pub kubeconfig: PathBuf,
    /// Where it listens.
    pub url: String,
}

impl Upstream {
    /// Starts both on free ports. `durable`: etcd syncs what it acknowledges to the disk. `dir` is made, and removed in
    /// the end.
    ///
    /// # Errors
    /// A program is not there, ends, or does not answer.
    pub async fn start(assets: &Path, dir: PathBuf, durable: bool) -> anyhow::Result<Self> {
        // Keys and tokens go there.
        private::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let pki = dir.join("pki");
        let credentials = Credentials::load_or_create(&pki, &[])?;
        let url = format!("https://127.0.0.1:{}", free_port()?);
        let kubeconfig = dir.join("kubeconfig");
        std::fs::write(&kubeconfig, credentials.kubeconfig(&url))?;
        let tokens = dir.join("tokens.csv");
        std::fs::write(&tokens, format!("{},admin,admin,system:masters\n", credentials.token))?;
        let mut running = Self { children: Vec::new(), dir, kubeconfig, url };
        let etcd = format!("http://127.0.0.1:{}", free_port()?);
        let mut args = vec![
            format!("--data-dir={}", running.dir.join("etcd").display()),
            format!("--listen-client-urls={etcd}"),
            format!("--advertise-client-urls={etcd}"),
            format!("--listen-peer-urls=http://127.0.0.1:{}", free_port()?),
        ];
        if !durable {
            args.push("--unsafe-no-fsync".into());
        }
        running.spawn(assets, "etcd", &args)?;
        let port = running.url.rsplit(':').next().unwrap_or_default().to_owned();
        let file = |name: &str| pki.join(name).display().to_string();
        let args = [
            format!("--etcd-servers={etcd}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".into(),
            format!("--cert-dir={}", running.dir.display()),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--token-auth-file={}", tokens.display()),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", file("server.crt")),
            format!("--service-account-signing-key-file={}", file("server.key")),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--authorization-mode=RBAC".into(),
            // Nothing here makes the account `default` that the first would put into every pod, or takes away the taint
            // that the second gives to every node. scheduler_perf does without them, too.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
            "--allow-privileged=true".into(),
            // No kube-proxy serves the addresses of Services here: webhooks go to endpoints, and fail at once without any.
            "--enable-aggregator-routing=true".into(),
        ];
        running.spawn(assets, "kube-apiserver", &args)?;
        running.ready().await?;
        Ok(running)
    }

    fn spawn(&mut self, assets: &Path, name: &str, args: &[String]) -> anyhow::Result<()> {
        let program = assets.join(name);
        let log = File::create(self.log(name))?;
        let child = Command::new(&program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| program.display().to_string())?;
        self.children.push(child);
        Ok(())
    }

    /// Processor time of both, and the memory that they needed at most, together.
    pub fn usage(&self) -> Usage {
        let [etcd, apiserver] = self.usages();
        Usage { cpu: etcd.cpu + apiserver.cpu, memory: etcd.memory + apiserver.memory }
    }

    /// Processor time of etcd and of kube-apiserver, and the memory that each needed at most.
    pub fn usages(&self) -> [Usage; 2] {
        [0, 1].map(|i| self.children.get(i).map_or_else(Usage::default, |c| usage(c.id())))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }

    /// Waits until it answers.
    async fn ready(&mut self) -> anyhow::Result<()> {
        let file = kube::config::Kubeconfig::read_from(&self.kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await?;
        let client = kube::Client::try_from(config)?;
        let began = Instant::now();
        loop {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            // That it doesn't answer yet is no error to log.
            let asked = client.request_text(request).with_subscriber(NoSubscriber::default()).await;
            let Err(error) = asked else { return Ok(()) };
            for (child, name) in self.children.iter_mut().zip(["etcd", "kube-apiserver"]) {
                if let Some(status) = child.try_wait()? {
                    let said = std::fs::read_to_string(self.dir.join(format!("{name}.log")));
                    let said = said.unwrap_or_default();
                    bail!("{name} ended ({status}): {}", said.lines().last().unwrap_or_default());
                }
            }
            if began.elapsed() > PATIENCE {
                return Err(error).context("kube-apiserver does not become ready");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // The server first: it would complain about the missing store.
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A port without a listener at the moment.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
