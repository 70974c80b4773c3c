package e2e_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/websocket"

	"github.com/plimsoll-dev/plimsoll/e2e/deadline"
)

// browser is a headless Chromium with one page, by its DevTools protocol.
type browser struct {
	t    *testing.T
	conn *websocket.Conn
	id   int
}

var devTools = regexp.MustCompile(`DevTools listening on ws://([^/]+)/`)

func startBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: the page's script is not run")
	}
	ctx, cancel := deadline.Context(t.Context(), 10*time.Minute) // of all that a test looks at
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with all its children
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if m := devTools.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, said) }() // ends with the program
			return &browser{t: t, conn: dialPage(t, m[1])}
		}
	}
	require.Fail(t, "the browser does not say where it listens")
	return nil
}

func dialPage(t *testing.T, address string) *websocket.Conn {
	t.Helper()
	status, body, err := get(http.DefaultClient, "http://"+address+"/json")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	var pages []struct{ Type, WebSocketDebuggerURL string }
	require.NoError(t, json.Unmarshal([]byte(body), &pages))
	for _, p := range pages {
		if p.Type == "page" {
			conn, err := websocket.Dial(p.WebSocketDebuggerURL, "", "http://"+address)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
	}
	require.Fail(t, "the browser has no page", body)
	return nil
}

// call asks the browser and returns its result.
func (b *browser) call(method string, params map[string]any) json.RawMessage {
	b.t.Helper()
	result, err := b.ask(method, params)
	require.NoError(b.t, err, method)
	return result
}

// ask is the same where the browser may refuse, such as while a page loads.
func (b *browser) ask(method string, params map[string]any) (json.RawMessage, error) {
	b.t.Helper()
	b.id++
	require.NoError(b.t, websocket.JSON.Send(b.conn, map[string]any{"id": b.id, "method": method, "params": params}))
	for {
		var answer struct {
			ID            int
			Result, Error json.RawMessage
		}
		require.NoError(b.t, websocket.JSON.Receive(b.conn, &answer))
		if answer.ID == b.id { // else an event
			if len(answer.Error) > 0 {
				return nil, fmt.Errorf("%s: %s", method, answer.Error)
			}
			return answer.Result, nil
		}
	}
}

// open shows a page. The browser gives up what it loads when a network device of the machine
// comes or goes, as those of other tests do: then it is asked again.
func (b *browser) open(url string) {
	b.t.Helper()
	eventually(b.t, "the page is loaded", func() error {
		var did struct{ ErrorText string }
		require.NoError(b.t, json.Unmarshal(b.call("Page.navigate", map[string]any{"url": url}), &did))
		if did.ErrorText == "net::ERR_NETWORK_CHANGED" {
			return errors.New(did.ErrorText)
		}
		return nil
	})
}

// js is the value of an expression in the page.
func (b *browser) js(expression string) any {
	b.t.Helper()
	value, err := b.evaluate(expression)
	require.NoError(b.t, err)
	return value
}

// evaluate is the same for a page that may be about to go.
func (b *browser) evaluate(expression string) (any, error) {
	b.t.Helper()
	result, err := b.ask("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true})
	if err != nil {
		return nil, err
	}
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	require.NoError(b.t, json.Unmarshal(result, &out))
	require.Empty(b.t, out.ExceptionDetails, expression)
	return out.Result.Value, nil
}

func (b *browser) waitFor(what, expression string) {
	b.t.Helper()
	eventually(b.t, what, func() error {
		v, err := b.evaluate(expression)
		if err == nil && v != true {
			err = fmt.Errorf("%s is %v", expression, v)
		}
		return err
	})
}

func TestBrowserFollowsLivePage(t *testing.T) {
	t.Parallel()
	a := startAgent(t).ticked(3)
	b := startBrowser(t)
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": true})
	b.open(a.url + "/")
	b.waitFor("it is live", `!!document.getElementById('live') && document.getElementById('live').textContent === 'live'`)
	b.js(`window.h1 = document.querySelector('h1'); window.was = document.querySelector('main').innerText;
		window.fold = document.querySelector('main details'); fold.open = true; fold.querySelector('summary').focus(); 0`)
	b.waitFor("the numbers change", `document.querySelector('main').innerText !== window.was`)
	assert.Equal(t, true, b.js(`window.h1 === document.querySelector('h1')`), "what is the same stays where it is")
	assert.Equal(t, true, b.js(`fold.isConnected && fold.open && document.activeElement === fold.querySelector('summary')`), "what is open and focused stays so")
	assert.Equal(t, false, b.js(`document.documentElement.scrollWidth > innerWidth`), "a phone shows its whole width")
	assert.True(t, strings.HasSuffix(b.js(`document.title`).(string), " – Plimsoll"))
	b.js(`const s = document.createElement('script'); s.textContent = 'window.evil = 1'; document.body.append(s)`)
	assert.Equal(t, false, b.js(`'evil' in window`), "no other script runs")

	require.NoError(t, a.cmd.Process.Signal(syscall.SIGSTOP))
	b.waitFor("it says that it is not live", `document.getElementById('live').textContent.startsWith('NOT LIVE')`)
	assert.Equal(t, true, b.js(`document.querySelector('main').classList.contains('lost') && document.title.startsWith('NOT LIVE')`), "a calm headline is no all-clear then")
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGCONT))
	b.waitFor("it goes on", `document.getElementById('live').textContent === 'live'`)
	assert.Equal(t, true, b.js(`'h1' in window`), "and was not loaded anew")
	assert.Equal(t, false, b.js(`document.querySelector('main').classList.contains('lost') || document.title.startsWith('NOT LIVE')`))
}

func TestBrowserWithoutScripts(t *testing.T) {
	t.Parallel()
	a := startAgent(t).ticked(3)
	b := startBrowser(t)
	b.open(a.url + "/")
	b.waitFor("the page is there", `!!document.querySelector('h1')`)
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
	b.open(a.url + "/")
	text := func() (text string) { // while it loads there is none
		out, _ := b.ask("Runtime.evaluate", map[string]any{"expression": `document.querySelector('.page').textContent`, "returnByValue": true})
		var v struct{ Result struct{ Value any } }
		_ = json.Unmarshal(out, &v)
		text, _ = v.Result.Value.(string)
		return text
	}
	first := ""
	eventually(t, "it is there again", func() error {
		if first = text(); !strings.Contains(first, "every 2 s") || !strings.Contains(first, "Contention") {
			return fmt.Errorf("%q", first)
		}
		return nil
	})
	eventually(t, "the numbers change", func() error {
		if now := text(); !strings.Contains(now, "every 2 s") || now == first {
			return fmt.Errorf("still %q", now)
		}
		return nil
	})
}
