//! Connects the engine to a Kubernetes API server: watches become events, actions become writes.
