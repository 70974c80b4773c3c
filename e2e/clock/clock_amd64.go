package clock

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

// Supported tells whether [Start] is known for this processor.
const Supported = true

// asking replaces the vDSO's clock_gettime(edi = clock, rsi = *timespec). A system
// call keeps both registers. The offset, whole seconds, follows it.
//
//nolint:gochecknoglobals // a constant, but for the language
var asking = []byte{
	0xb8, 228, 0, 0, 0, // mov  eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
	0x75, 0x0a, // jne  over
	0x48, 0x8b, 0x0d, 0x0e, 0, 0, 0, // mov  rcx, [rip+14]: the offset
	0x48, 0x01, 0x0e, // add  [rsi], rcx
	0xc3,                         // over: ret
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // up to 32
}

// Clock of a process that [Start] has started.
type Clock struct {
	pid    int
	offset int64 // address
}

// Start a command whose clock can be set. It is not started where that fails.
func Start(cmd *exec.Cmd) (*Clock, error) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true // it stands still before its first instruction
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c, err := replace(cmd.Process.Pid)
	if err == nil {
		err = syscall.PtraceDetach(cmd.Process.Pid)
	}
	if err != nil {
		_ = cmd.Process.Kill() // what is told is why
		_ = cmd.Wait()
		return nil, fmt.Errorf("clock of %s: %w", cmd.Path, err)
	}
	return c, nil
}

// replace the function in a process that stands still.
func replace(pid int) (*Clock, error) {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return nil, err
	}
	if !status.Stopped() {
		return nil, fmt.Errorf("it does not stand still: %#x", status)
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	at, err := function(pid, memory)
	if err != nil {
		return nil, err
	}
	_, err = memory.WriteAt(append(bytes.Clone(asking), make([]byte, 8)...), at)
	return &Clock{pid: pid, offset: at + int64(len(asking))}, err
}

// function is the address of the vDSO's clock_gettime in a process.
func function(pid int, memory *os.File) (int64, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	line := regexp.MustCompile(`(?m)^(\w+)-(\w+) .*\[vdso\]$`).FindSubmatch(maps)
	if line == nil {
		return 0, errors.New("it has no vDSO")
	}
	var from, to int64
	if _, err := fmt.Sscanf(string(line[1])+" "+string(line[2]), "%x %x", &from, &to); err != nil {
		return 0, err
	}
	image, err := elf.NewFile(io.NewSectionReader(memory, from, to-from))
	if err != nil {
		return 0, err
	}
	symbols, err := image.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size >= uint64(len(asking)+8) && s.Value%8 == 0 {
			return from + int64(s.Value), nil
		}
	}
	return 0, errors.New("its vDSO has no clock_gettime that can be replaced")
}

// Set the process's clock so far ahead of the machine's, in whole seconds;
// negative: behind.
func (c *Clock) Set(ahead time.Duration) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("set the clock of process %d: %w", c.pid, err)
	}
	defer memory.Close()
	if _, err := memory.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(int64(ahead/time.Second))), c.offset); err != nil {
		return fmt.Errorf("set the clock of process %d: %w", c.pid, err)
	}
	return nil
}
