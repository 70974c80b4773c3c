package cluster

import (
	"context"
	"fmt"
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenSeconds: no test outlives its token.
const tokenSeconds = 24 * 60 * 60

// users makes clients of a control plane: users with certificates, service accounts with
// tokens, and their kubeconfig files.
type users struct {
	place     place
	url       string // of the first API server
	authority *authority
	client    kubernetes.Interface // Cluster.Client
}

// User is a client configuration with a certificate for a user of these groups,
// such as "system:node:n1" of "system:nodes". It is not throttled by itself.
func (u *users) User(name string, groups ...string) (*rest.Config, error) {
	p, err := u.authority.client(name, groups...)
	if err != nil {
		return nil, err
	}
	config := u.anonymous()
	config.CertData, config.KeyData = p.certificate, p.key
	return config, nil
}

// anonymous knows the first API server and has no identity.
func (u *users) anonymous() *rest.Config {
	return &rest.Config{
		Host: u.url, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: u.authority.pem},
	}
}

// BoundTo is the object whose end ends a token: a Pod of the account's namespace
// or a Node. The zero value binds it to nothing.
type BoundTo struct {
	Kind, Name string
	UID        types.UID // may be empty
}

// ServiceAccount makes a service account where there is none, and returns a
// kubeconfig file with a token of it, readable by its owner alone. The
// namespace must exist.
func (u *users) ServiceAccount(ctx context.Context, namespace, name string, to BoundTo) (string, error) {
	config, err := u.ServiceAccountConfig(ctx, namespace, name, to)
	if err != nil {
		return "", err
	}
	return u.WriteKubeconfig(namespace+"-"+name, config)
}

// ServiceAccountConfig is [Cluster.ServiceAccount] for a client in this process.
func (u *users) ServiceAccountConfig(ctx context.Context, namespace, name string, to BoundTo) (*rest.Config, error) {
	token, err := u.token(ctx, namespace, name, to)
	if err != nil {
		return nil, fmt.Errorf("service account %s/%s: %w", namespace, name, err)
	}
	config := u.anonymous()
	config.BearerToken = token
	return config, nil
}

func (u *users) token(ctx context.Context, namespace, name string, to BoundTo) (string, error) {
	accounts := u.client.CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds))}}
	if to != (BoundTo{}) {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: to.Kind, Name: to.Name, UID: to.UID}
	}
	given, err := accounts.CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	return given.Status.Token, nil
}

// WriteKubeconfig writes config as a kubeconfig file, readable by its owner
// alone, a new one each time. Its Host may have been changed to where somebody
// else reaches the API server.
func (u *users) WriteKubeconfig(name string, config *rest.Config) (string, error) {
	f, err := os.CreateTemp(u.place.dir, name+"-*.kubeconfig")
	if err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["e2e"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	file.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: name}
	file.CurrentContext = "e2e"
	if err := clientcmd.WriteToFile(*file, f.Name()); err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	return f.Name(), nil
}
