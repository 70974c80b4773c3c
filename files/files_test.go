package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plimsoll-dev/plimsoll/files"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, 2048), 0o600))
	t.Run("a file within the bound is read whole", func(t *testing.T) {
		text, err := files.Read(path, 2048)
		require.NoError(t, err)
		assert.Len(t, text, 2048)
	})
	t.Run("a larger one is an error that names the bound", func(t *testing.T) {
		_, err := files.Read(path, 1024)
		require.ErrorIs(t, err, files.ErrTooLarge)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "the bound is 1 KiB")
	})
	t.Run("a device is none", func(t *testing.T) {
		_, err := files.Read("/dev/zero", 1024)
		require.EqualError(t, err, "read /dev/zero: not a regular file")
		require.ErrorIs(t, err, files.ErrNotRegular)
	})
	t.Run("a stream without an end has a bound", func(t *testing.T) {
		zero, err := os.Open("/dev/zero")
		require.NoError(t, err)
		defer zero.Close()
		_, err = files.ReadFrom("-", zero, 1024)
		require.ErrorIs(t, err, files.ErrTooLarge)
	})
	t.Run("a stream that fails is an error", func(t *testing.T) {
		broken := errors.New("broken")
		_, err := files.ReadFrom("-", iotest.ErrReader(broken), 1024)
		require.ErrorIs(t, err, broken)
	})
}

func TestPermitted(t *testing.T) {
	denied := func(op, path string) error {
		return errors.Join(errors.New("asked"), &fs.PathError{Op: op, Path: path, Err: fs.ErrPermission})
	}
	t.Run("the owner and the group are named", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, nil, 0o640))
		require.NoError(t, os.Chmod(path, 0o640))
		text := strings.Join(files.Permitted(denied("open", path)), "\n")
		assert.Contains(t, text, path+": open to user ")
		assert.Contains(t, text, " and the members of group ")
		assert.NotContains(t, strings.Join(files.Permitted(denied("connect", path)), ""), "members of", "the group may not write")
	})
	t.Run("other errors say nothing", func(t *testing.T) {
		assert.Empty(t, files.Permitted(errors.New("permission denied")))
		assert.Empty(t, files.Permitted(&fs.PathError{Op: "open", Path: "/", Err: fs.ErrNotExist}))
		assert.Empty(t, files.Permitted(denied("open", filepath.Join(t.TempDir(), "nowhere"))))
	})
}
