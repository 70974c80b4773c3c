package controller

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestOtherUserIsLogged(t *testing.T) {
	for user, want := range map[string]int{account: 0, "kubernetes-admin": 1} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "POST /apis/authentication.k8s.io/v1/selfsubjectreviews", r.Method+" "+r.URL.Path)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":%q}}}`, user)
		}))
		t.Cleanup(s.Close)
		clients, err := NewClients(&rest.Config{Host: s.URL}, 15*time.Second)
		require.NoError(t, err)
		var log bytes.Buffer
		(&Controller{Log: slog.New(slog.NewTextHandler(&log, nil)), reviews: clients.reviews}).checkUser(t.Context())
		assert.Equal(t, want, strings.Count(log.String(), "level=WARN"), log.String())
		assert.Equal(t, want, strings.Count(log.String(), "user=kubernetes-admin account="+account))
	}
}
